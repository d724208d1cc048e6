"""Counts the sources with words or letters that a model doesn't know, so that none is replaced unseen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass
class UnknownCounts:
    """The number of sources, how many of them have what no vocabulary has, and the number of the first."""

    num_sources: int = 0
    num_unknown: int = 0
    first: int = 0

    def watch(self, outputs: Iterable[Any]) -> Iterator[Any]:
        """Pass outputs on, and count their sources."""
        for best in outputs:
            self.num_sources += 1
            if getattr(best, "unknown", None):
                self.num_unknown += 1
                self.first = self.first or self.num_sources
            yield best

    def describe(self) -> list[str]:
        if not self.num_unknown:
            return []
        many = f"{self.num_unknown:,} of {self.num_sources:,} source{'' if self.num_sources == 1 else 's'}"
        has = "has words or letters" if self.num_unknown == 1 else "have words or letters"
        return [f"{many} {has} that the model doesn't know and reads as <unk>, the first is {self.first:,}"]
