"""Counts the words that people insist on: terms and placeholders, and how outputs have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

from saccade.tasks.base import Evaluation


@final
@dataclass
class InsistedCounts:
    """Counts of how terms of a glossary with `num_entries` are written, and how placeholders came into outputs."""

    num_entries: int = 0
    terms: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def watch(self, outputs: Iterable[Any]) -> Iterator[Any]:
        """Pass the best outputs on, and count."""
        for best in outputs:
            for term in getattr(best, "terms", ()):
                self.terms[term.way] += 1
                self.seen.add((term.source.lower(), term.target))
            self.kept.update(one.way for one in getattr(best, "kept", ()))
            yield best

    def add(self, other: InsistedCounts) -> None:
        """Count what was counted elsewhere with the same glossary, too."""
        self.num_entries = other.num_entries
        self.terms.update(other.terms)
        self.kept.update(other.kept)
        self.seen |= other.seen

    def describe(self) -> list[str]:
        """Say how many terms are written; of placeholders only what is unusual."""
        lines = []
        if self.num_entries:
            ways = (f"{self.terms[way]:,} {way}" for way in ("as asked", "in another form", "missing"))
            lines.append(f"terms: {', '.join(ways)}; {self._num_unused:,} of {self.num_entries:,} are in no source")
        if count := self.kept["by length"]:
            said = "put in by the length of what stands before them, as the model has no attention"
            lines.append(f"{count:,} of {self.kept.total():,} placeholders: {said}")
        return lines

    @property
    def _num_unused(self) -> int:
        return self.num_entries - len(self.seen)

    def add_to(self, found: Evaluation) -> Evaluation:
        """Return an evaluation with the counts of terms, if there is a glossary, and their lines."""
        counts = {"terms": {**self.terms, "in no source": self._num_unused}} if self.num_entries else {}
        return found._replace(scores={**found.scores, **counts}, lines=[*found.lines, *self.describe()])
