"""Results of a memory network: what it writes back, and where its heads were meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from saccade.inspection.draw import tracks
from saccade.inspection.insight import round_weights
from saccade.tasks.base import Result
from saccade.tasks.remember.sequences import BitSequence, Size, spell

SEEN = 0.02  # a place that no head ever gives more is left out of pictures


@final
@dataclass(frozen=True)
class HeadTracks:
    """The weights of each head over the places at every step, [H, T, S]; the first `num_reading` heads read."""

    weight_HTS: Tensor
    num_reading: int

    @property
    def names(self) -> list[str]:
        """Name the heads as pictures do."""
        num_writing = len(self.weight_HTS) - self.num_reading
        counts = (("reads", self.num_reading), ("writes", num_writing))
        return [verb if count == 1 else f"{verb} {number}" for verb, count in counts for number in range(1, count + 1)]

    def sources(self, length: int) -> Tensor:
        """Return which of the `length` first steps wrote what each later one knows, as shares [T', S].

        A step's output depends on what is read in it and on what was read in the step before, which the controller
        sees; both count alike.
        """
        read_HTP, written_HSP = self.weight_HTS[: self.num_reading], self.weight_HTS[self.num_reading :, :length]
        both_HTP = read_HTP[:, length:] + read_HTP[:, length - 1 : -1]
        shared_TS = torch.einsum("atp,bsp->ts", both_HTP, written_HSP)
        return shared_TS / shared_TS.sum(-1, keepdim=True).clamp(min=1e-9)

    def visited(self) -> slice:
        """Return the places from the first to the last that some head visits."""
        places = (self.weight_HTS.amax((0, 1)) > SEEN).nonzero().flatten()
        return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(None)


@final
@dataclass(frozen=True)
class Recollection(Result):
    """Vectors that were written back [T, W], the probability of each bit [T, W], and that of the end after them."""

    given: BitSequence
    bit_TW: NDArray[np.uint8]
    share_TW: Tensor
    end: float
    heads: HeadTracks | None = None
    shows_heads: bool = False

    @property
    def words(self) -> list[str]:
        return spell(self.bit_TW)

    @property
    def right_bits(self) -> NDArray[np.bool_]:
        right: NDArray[np.bool_] = self.bit_TW == np.tile(self.given.bit_SW, (self.given.repeats, 1))
        return right

    @property
    def bits_right(self) -> float:
        """Return the percentage of the bits that are right."""
        return 100 * float(self.right_bits.mean()) if self.bit_TW.size else 100.0

    @property
    def log_probabilities(self) -> list[float]:
        """Return log p of each vector, and of the end."""
        chosen_TW = torch.where(torch.from_numpy(self.bit_TW).bool(), self.share_TW, 1 - self.share_TW)
        end = torch.tensor([self.end]) if len(self.bit_TW) else torch.ones(1)
        found: list[float] = torch.cat([chosen_TW.clamp(min=1e-9).log().sum(-1), end.clamp(min=1e-9).log()]).tolist()
        return found

    def line(self) -> str:
        return " ".join(self.words)

    def plain(self) -> dict[str, Any]:
        log_probabilities = self.log_probabilities
        found: dict[str, Any] = {
            "text": self.line(),
            "score": sum(log_probabilities),
            "log_probabilities": log_probabilities,
        }
        found |= {"pieces": self.words, "bits_right": self.bits_right, "end": self.end}
        if self.shows_heads and self.heads is not None:
            found["attention"] = round_weights(self.heads.weight_HTS)
        return found

    def show(self, console: Console) -> None:
        """Print the bits and the heads over time."""
        if self.shows_heads and len(self.bit_TW):
            console.print(tracks.in_terminal(self.panels(), console))

    def draw(self, path: Path) -> None:
        """Draw the bits and the heads over time."""
        tracks.to_file(self.panels(), Path(path), title=self.title, mark=self.turn)

    @property
    def title(self) -> str:
        return f"{self.given.size} vectors, {self.bits_right:.1f}% of the bits right"

    @property
    def turn(self) -> float:
        """Return where reading ends and writing begins, as pictures count steps."""
        return len(self.given.bit_SW) + 1.5

    def panels(self) -> list[tracks.TrackPanel]:
        """Return the bits, given and written, and each head's places, step by step."""
        steps, length = self.given.size.num_steps, len(self.given.bit_SW)
        given_TW, written_TW = (np.full((steps, self.bit_TW.shape[1]), np.nan) for _ in range(2))
        given_TW[:length] = self.given.bit_SW
        written_TW[length + 1 : -1] = self.share_TW.numpy()
        panels = [tracks.TrackPanel("given", given_TW.T), tracks.TrackPanel("written", written_TW.T)]
        if self.heads is not None:
            where = self.heads.visited()
            for name, weight_TS in zip(self.heads.names, self.heads.weight_HTS[..., where], strict=True):
                panels.append(tracks.TrackPanel(name, weight_TS.T.double().numpy(), first=where.start or 0))
        return panels


class SizeCounts(NamedTuple):
    """Scores on the sequences of one size: percent of the bits that are right, and of those without a mistake."""

    size: Size
    num_sequences: int
    bits_right: float
    exact: float

    @classmethod
    def of(cls, size: Size, found: Sequence[Recollection]) -> SizeCounts:
        right = [one.right_bits for one in found]
        bits = 100 * float(np.mean([one.mean() for one in right]))
        return cls(size, len(right), bits, 100 * float(np.mean([one.all() for one in right])))

    def plain(self) -> dict[str, Any]:
        return {
            **self.size._asdict(),
            "num_sequences": self.num_sequences,
            "bits_right": self.bits_right,
            "exact": self.exact,
        }

    def line(self) -> str:
        shown = (
            f"{self.bits_right:.2f}% of the bits right, {self.exact:.0f}% of {self.num_sequences:,} without a mistake"
        )
        return f"length {self.size}: {shown}"
