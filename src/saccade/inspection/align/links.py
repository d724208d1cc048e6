"""Links between source and target words: their scores, and how two directions are combined.

A link is (source word, target word), counted from 0. Pharaoh's format writes links as `0-0 1-2`. Two directions are
combined as in Koehn 2005 (IWSLT), in the order in which Moses visits the links.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple, final

Link = tuple[int, int]
Links = frozenset[Link]
NEIGHBOURS = ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))


class Gold(NamedTuple):
    """The links that people made: sure ones and possible ones (a sure link is also possible)."""

    sure: Links
    possible: Links

    def reverse(self) -> Gold:
        """Return the same links from target to source."""
        return Gold(reverse(self.sure), reverse(self.possible))


class AlignmentScores(NamedTuple):
    """precision = |A & P| / |A|, recall = |A & S| / |S|, AER = 1 - (|A & S| + |A & P|) / (|A| + |S|).

    The alignment error rate is from Och & Ney 2003, section 5. Precision and recall are 1 and AER is 0 if there is
    nothing to divide by.
    """

    num_links: int
    num_sure: int
    in_sure: int
    in_possible: int

    @property
    def precision(self) -> float:
        """Return the share of the links that are possible."""
        return self.in_possible / self.num_links if self.num_links else 1.0

    @property
    def recall(self) -> float:
        """Return the share of the sure links that were found."""
        return self.in_sure / self.num_sure if self.num_sure else 1.0

    @property
    def aer(self) -> float:
        total = self.num_links + self.num_sure
        return 1 - (self.in_sure + self.in_possible) / total if total else 0.0

    def plain(self) -> dict[str, float]:
        return {"aer": self.aer, "precision": self.precision, "recall": self.recall}


def score_links(found: Iterable[Links], gold: Iterable[Gold]) -> AlignmentScores:
    """Score the links of all sentences together against gold."""
    counts = [
        (len(links), len(true.sure), len(links & true.sure), len(links & true.possible))
        for links, true in zip(found, gold, strict=True)
    ]
    return (
        AlignmentScores(*(sum(column) for column in zip(*counts, strict=True)))
        if counts
        else AlignmentScores(0, 0, 0, 0)
    )


def reverse(links: Iterable[Link]) -> Links:
    """Swap source and target of every link."""
    return frozenset((target, source) for source, target in links)


def format_pharaoh(links: Iterable[Link]) -> str:
    """Format links in order as a line of Pharaoh's format."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


@final
class _Alignment:
    """A growing set of links, and the words that have a link."""

    def __init__(self, links: Links) -> None:
        self.links = set(links)
        self.sources, self.targets = ({link[side] for link in links} for side in (0, 1))

    def add(self, link: Link) -> None:
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])

    def num_covered(self, link: Link) -> int:
        """Count which of the link's two words already have a link."""
        return (link[0] in self.sources) + (link[1] in self.targets)


def intersection(forward: Links, backward: Links) -> Links:
    """Return the links that both directions have."""
    return forward & backward


def union(forward: Links, backward: Links) -> Links:
    """Return the links that either direction has."""
    return forward | backward


def grow_diag(forward: Links, backward: Links) -> Links:
    """Grow the intersection by adjacent links of the union (corners count) that link a word without a link."""
    return frozenset(_grow_fully(forward, backward).links)


def grow_diag_final(forward: Links, backward: Links) -> Links:
    """Grow as grow-diag, then add links of one direction, then of the other, that link a word without a link."""
    return _grow_and_finish(forward, backward, most_covered=1)


def grow_diag_final_and(forward: Links, backward: Links) -> Links:
    """Grow as grow-diag, then add links of one direction, then of the other, if both words have no link."""
    return _grow_and_finish(forward, backward, most_covered=0)


SYMMETRIZERS: dict[str, Callable[[Links, Links], Links]] = {
    "intersection": intersection,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final": grow_diag_final,
    "grow-diag-final-and": grow_diag_final_and,
}


def _grow_fully(forward: Links, backward: Links) -> _Alignment:
    allowed, grown = forward | backward, _Alignment(forward & backward)
    while _grow(grown, allowed):
        pass
    return grown


def _grow(grown: _Alignment, allowed: Links) -> bool:
    """Visit all links once by target, then source, also links added further on; return True if any was added."""
    waiting = sorted(link[::-1] for link in grown.links)  # a heap
    before = len(grown.links)
    while waiting:
        target, source = heapq.heappop(waiting)
        for link in ((source + right, target + down) for right, down in NEIGHBOURS):
            if link in allowed and grown.num_covered(link) < 2:
                grown.add(link)
                if link[::-1] > (target, source):
                    heapq.heappush(waiting, link[::-1])
    return len(grown.links) > before


def _grow_and_finish(forward: Links, backward: Links, *, most_covered: int) -> Links:
    grown = _grow_fully(forward, backward)
    for direction in (forward, backward):
        for link in sorted(direction, key=lambda link: link[::-1]):
            if grown.num_covered(link) <= most_covered:
                grown.add(link)
    return frozenset(grown.links)
