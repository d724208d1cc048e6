"""Answers of a language model: how a text goes on, and how likely that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from torch import Tensor

from saccade.decoding import Cut
from saccade.errors import UserError
from saccade.inspection.draw import heatmap
from saccade.tasks.cuts import Kind, tell_kind


class Writing(NamedTuple):
    """A text that goes on from a `prompt`: its score (log p), its pieces, and the log-probability of each.

    Where it `ended`, the last log-probability is that of </s>. `cut` is "length" where it reached its greatest length,
    and "loop" where it went in circles. `whole` is the prompt with the text. With `attention=True` also the weights
    [T, S] of each piece on the pieces that were `read` before it. `others` are the next best texts.
    """

    prompt: str
    text: str
    whole: str
    score: float
    pieces: list[str]
    log_probabilities: list[float]
    ended: bool = True
    cut_by: Cut | None = None
    attention: Tensor | None = None
    read: list[str] | None = None
    others: tuple[Writing, ...] = ()

    @property
    def cut(self) -> Kind | None:
        return tell_kind(self.cut_by)

    @property
    def perplexity(self) -> float:
        """exp(-log p / tokens), of the text that was written."""
        return math.exp(min(50.0, -sum(self.log_probabilities) / max(1, len(self.log_probabilities))))

    def line(self) -> str:
        return self.whole

    def plain(self) -> dict[str, Any]:
        hidden = ("others", "cut_by", "attention", "read")
        shown = {name: value for name, value in self._asdict().items() if name not in hidden}
        shown |= {"perplexity": self.perplexity, **({} if self.cut is None else {"cut": self.cut})}
        if self.attention is not None:
            shown |= {"read": self.read, "attention": [[round(w, 4) for w in row] for row in self.attention.tolist()]}
        return {**shown, "others": [one.plain() for one in self.others]} if self.others else shown

    def show(self, console: Console) -> None:
        """Print the weights, where there are any."""
        if self.attention is not None and self.read is not None:
            shown = heatmap.in_terminal(self.attention, queries=self.pieces, keys=self.read, console=console)
            console.print(shown)

    def draw(self, path: Path) -> None:
        """Draw the weights as a PNG, SVG or PDF."""
        if self.attention is None or self.read is None:
            raise UserError(f"{path}: there are no weights to draw; ask for attention")
        heatmap.to_file(self.attention, path, queries=self.pieces, keys=self.read, title="")


def join_best(best: Sequence[Writing]) -> Writing:
    """Return the best text with the others, if there are any."""
    first, *others = best
    return first._replace(others=tuple(others))
