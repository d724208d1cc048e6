"""Which source word is which target word: links, how right they are, and two directions made one.

A link is (source word, target word), counted from 0. Written as Pharaoh writes them: `0-0 1-2`. Two directions are
made one as Koehn 2005 (IWSLT) says, in the order in which Moses goes through them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple, final

Link = tuple[int, int]
Links = frozenset[Link]
NEIGHBOURS = ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))


class Gold(NamedTuple):
    """What people linked: surely, or possibly (sure links are possible too)."""

    sure: Links
    possible: Links

    def reversed(self) -> Gold:
        """The same seen from the target."""
        return Gold(reverse(self.sure), reverse(self.possible))


class AlignmentScores(NamedTuple):
    """precision = |A & P| / |A|, recall = |A & S| / |S|, AER = 1 - (|A & S| + |A & P|) / (|A| + |S|).

    Alignment error rate: Och & Ney 2003, section 5. Where there is nothing to divide by, nothing is wrong.
    """

    num_links: int
    num_sure: int
    in_sure: int
    in_possible: int

    @property
    def precision(self) -> float:
        """How many of the links are possible."""
        return self.in_possible / self.num_links if self.num_links else 1.0

    @property
    def recall(self) -> float:
        """How many of the sure links were found."""
        return self.in_sure / self.num_sure if self.num_sure else 1.0

    @property
    def aer(self) -> float:
        total = self.num_links + self.num_sure
        return 1 - (self.in_sure + self.in_possible) / total if total else 0.0

    def plain(self) -> dict[str, float]:
        return {"aer": self.aer, "precision": self.precision, "recall": self.recall}


def scored(found: Iterable[Links], gold: Iterable[Gold]) -> AlignmentScores:
    """All sentences together."""
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
    """Links seen from the other side."""
    return frozenset((target, source) for source, target in links)


def pharaoh(links: Iterable[Link]) -> str:
    """A line of links, in order."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


@final
class _Alignment:
    """Links that grow, and the words that have one."""

    def __init__(self, links: Links) -> None:
        self.links = set(links)
        self.sources, self.targets = ({link[side] for link in links} for side in (0, 1))

    def add(self, link: Link) -> None:
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])

    def num_covered(self, link: Link) -> int:
        """How many of its two words have a link."""
        return (link[0] in self.sources) + (link[1] in self.targets)


def intersection(forward: Links, backward: Links) -> Links:
    """What both directions say."""
    return forward & backward


def union(forward: Links, backward: Links) -> Links:
    """What either direction says."""
    return forward | backward


def grow_diag(forward: Links, backward: Links) -> Links:
    """The intersection, and of the union whatever touches it (also at a corner) and links a word that had no link."""
    return frozenset(_grown(forward, backward).links)


def grow_diag_final(forward: Links, backward: Links) -> Links:
    """... and whatever else of one direction, then of the other, links a word that had no link."""
    return _finished(forward, backward, most_covered=1)


def grow_diag_final_and(forward: Links, backward: Links) -> Links:
    """... and whatever else of one direction, then of the other, links two words that had no link."""
    return _finished(forward, backward, most_covered=0)


SYMMETRIZERS: dict[str, Callable[[Links, Links], Links]] = {
    "intersection": intersection,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final": grow_diag_final,
    "grow-diag-final-and": grow_diag_final_and,
}


def _grown(forward: Links, backward: Links) -> _Alignment:
    allowed, grown = forward | backward, _Alignment(forward & backward)
    while _grow(grown, allowed):
        pass
    return grown


def _grow(grown: _Alignment, allowed: Links) -> bool:
    """Go once through all links by target, then source, also those that are added ahead; say if any was."""
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


def _finished(forward: Links, backward: Links, *, most_covered: int) -> Links:
    grown = _grown(forward, backward)
    for direction in (forward, backward):
        for link in sorted(direction, key=lambda link: link[::-1]):
            if grown.num_covered(link) <= most_covered:
                grown.add(link)
    return frozenset(grown.links)
