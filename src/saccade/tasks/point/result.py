"""Results of a pointer network: the places that it points at, and how sure it is of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from rich.console import Console
from torch import Tensor

from saccade.data.text.tokenizer import END, SPECIAL
from saccade.inspection.draw import heatmap, plane
from saccade.inspection.insight import round_weights
from saccade.tasks.base import Result
from saccade.tasks.point.problems import Example


@final
@dataclass(frozen=True)
class Pointing(Result):
    """The places in the order in which they were pointed at, with their log-probabilities, that of the end included.

    `weight_TS` are the weights of each step on all places, the one behind the last included; `others` the next best.
    """

    given: Example
    places: list[int]
    score: float
    log_probabilities: list[float]
    weight_TS: Tensor | None = None
    others: Sequence[Pointing] = ()

    @property
    def words(self) -> list[str]:
        spelled = self.given.words
        return [spelled[place] for place in self.places]

    @property
    def is_right(self) -> bool:
        return self.places == self.given.places

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def line(self) -> str:
        return self.text

    def plain(self) -> dict[str, Any]:
        found: dict[str, Any] = {"text": self.text, "score": self.score, "log_probabilities": self.log_probabilities}
        found |= {"pieces": self.words, "places": self.places, "right": self.is_right}
        if self.weight_TS is not None:
            found["attention"] = round_weights(self.weight_TS)
        if self.others:
            found["others"] = [one.plain() for one in self.others]
        return found

    def show(self, console: Console) -> None:
        """Print the weights of each step on the elements."""
        if self.weight_TS is not None and len(self.weight_TS):
            console.print(heatmap.in_terminal(self.weight_TS, queries=self.queries, keys=self.keys, console=console))

    def draw(self, path: Path) -> None:
        """Draw points in their plane with the way that was taken, or numbers with the weights of each step."""
        if not self.places:
            return
        if self.given.value_SC.shape[1] == plane.WIDTH:
            plane.to_file(self.way, path, title=self.title)
        else:
            assert self.weight_TS is not None
            heatmap.to_file(self.weight_TS, path, queries=self.queries, keys=self.keys, title=self.title)

    @property
    def way(self) -> plane.PointingPath:
        """Return what is drawn of points in their plane."""
        return plane.PointingPath(self.given.value_SC, self.places, self.log_probabilities, self.given.places)

    @property
    def queries(self) -> list[str]:
        return [*self.words, SPECIAL[END]][: len(self.log_probabilities)]

    @property
    def keys(self) -> list[str]:
        return [*self.given.words, SPECIAL[END]]

    @property
    def title(self) -> str:
        return f"{len(self.given.value_SC)} elements, {'right' if self.is_right else 'wrong'}"


class SizeCounts(NamedTuple):
    """Scores on the problems of one size: percent that are exactly right, and of single steps that are."""

    size: int
    num_problems: int
    exact: float
    steps: float

    @classmethod
    def of(cls, size: int, found: Sequence[Pointing]) -> SizeCounts:
        right = sum(one.is_right for one in found)
        steps = sum(a == b for one in found for a, b in zip(one.places, one.given.places, strict=False))
        wanted = sum(max(len(one.places), len(one.given.places)) for one in found)
        return cls(size, len(found), 100 * right / len(found), 100 * steps / max(1, wanted))

    def line(self) -> str:
        right = f"{self.exact:.1f}% of {self.num_problems:,} exactly right"
        return f"{self.size} elements: {right}, {self.steps:.2f}% of their steps"
