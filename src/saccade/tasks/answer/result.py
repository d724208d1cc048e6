"""The answer to a question, and which sentences each hop read; counts of right ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from rich.console import Console
from torch import Tensor

from saccade.data.stories import Story
from saccade.inspection.draw import heatmap
from saccade.tasks.base import Result

LONGEST = 64  # columns of a sentence in the terminal


def hop_names(count: int) -> list[str]:
    """Name the hops as tables and pictures show them."""
    return [f"hop {number}" for number in range(1, count + 1)]


@final
@dataclass(frozen=True)
class StoryAnswer(Result):
    """An answer, its probability and those of the likeliest ones; the sentences, and each hop's weights [T, S]."""

    label: str
    probability: float
    probabilities: dict[str, float]
    sentences: tuple[str, ...]
    attention: Tensor
    shows_hops: bool = False

    @property
    def read(self) -> list[int]:
        """Return the sentence that each hop read most; none where there is no story."""
        return self.attention.argmax(-1).tolist() if self.sentences else []

    def line(self) -> str:
        return f"{self.label}\t{self.probability:.3f}"

    def plain(self) -> dict[str, Any]:
        found = {"label": self.label, "probability": self.probability, "probabilities": self.probabilities}
        return {**found, "sentences": list(self.sentences), "attention": self.attention.tolist()}

    def show(self, console: Console) -> None:
        """Print the story, a sentence a line, with what each hop gave it."""
        if self.sentences and self.shows_hops:
            hops = hop_names(len(self.attention))
            weights_ST = self.attention.T
            console.print(
                heatmap.in_terminal(weights_ST, queries=self.sentences, keys=hops, console=console, longest=LONGEST)
            )

    def draw(self, path: Path) -> None:
        """Draw the weights of the sentences as a picture, a row for each hop."""
        heatmap.check_ending(path := Path(path))
        title = f"{self.label} {self.probability:.2f}"
        queries = hop_names(len(self.attention))
        heatmap.to_file(self.attention, path, queries=queries, keys=list(self.sentences), title=title)


class AnswerCounts(NamedTuple):
    """Shares of right answers, of all and of each kind of question; and how well hops find the facts.

    `precision` is the share of hops whose strongest sentence is a fact, `recall` the share of facts that are some
    hop's strongest sentence; both in percent, None where no question names its facts.
    """

    accuracy: float
    by_kind: dict[str, tuple[int, float]]
    precision: float | None
    recall: float | None

    @classmethod
    def of(cls, stories: Sequence[Story], found: Sequence[StoryAnswer]) -> AnswerCounts:
        right = [one.label == story.answer for story, one in zip(stories, found, strict=True)]
        kinds: dict[str, list[bool]] = {}
        for story, is_right in zip(stories, right, strict=True):
            kinds.setdefault(story.kind, []).append(is_right)
        hops = num_hit = facts = num_found = 0
        for story, one in zip(stories, found, strict=True):
            if story.facts:
                skipped = len(story.sentences) - len(one.sentences)  # those told first are not read
                read, told = [row + skipped for row in one.read], set(story.facts)
                hops, num_hit = hops + len(read), num_hit + sum(row in told for row in read)
                facts, num_found = facts + len(told), num_found + len(told & set(read))
        by_kind = {kind: (len(marks), _percent(sum(marks), len(marks))) for kind, marks in sorted(kinds.items())}
        precision, recall = (_percent(num_hit, hops), _percent(num_found, facts)) if hops else (None, None)
        return cls(_percent(sum(right), len(right)), by_kind, precision, recall)

    def scores(self) -> dict[str, Any]:
        found: dict[str, Any] = {"accuracy": self.accuracy}
        if set(self.by_kind) != {""}:
            found["by_kind"] = {kind: accuracy for kind, (_, accuracy) in self.by_kind.items()}
        if self.precision is not None:
            found |= {"fact_precision": self.precision, "fact_recall": self.recall}
        return found

    def lines(self) -> list[str]:
        said = []
        if set(self.by_kind) != {""}:
            said = [f"  {kind or 'other'}: {right:.2f} of {count:,}" for kind, (count, right) in self.by_kind.items()]
        if self.precision is not None:
            said.append(
                f"{self.precision:.1f}% of the hops read a supporting fact most, and {self.recall:.1f}% of the facts "
                "were read most by a hop"
            )
        return said


def _percent(count: int, total: int) -> float:
    return 100 * count / max(1, total)
