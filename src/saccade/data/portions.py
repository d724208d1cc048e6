"""Reads a corpus that is too large to be shuffled at once: blocks of it in random order, a portion at a time.

A portion is read from the disk block by block and shuffled in memory, which so grows with the portion and not with the
corpus. Portions are what a plan calls epochs: where a run stands is a portion's number and a batch of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from saccade.data.batches import CorpusPart, draw_rows
from saccade.data.store import Store, join_rows

BLOCK = 8192  # neighbouring pairs that are read together
FEWEST_BLOCKS = 128  # of a corpus that has enough pairs

MakePlan = Callable[[Store], Any]  # from the pairs of a portion to a plan


class PortionRows(NamedTuple):
    """The rows of a batch, and the plan of the portion that they are in."""

    plan: Any
    rows: Any


@final
class Portions:
    """Plans the batches of one portion after the other.

    Blocks are drawn as other plans draw rows: each as often as the weight of its corpus says, in an order of its own in
    each pass through the corpora.
    """

    def __init__(
        self, stores: Sequence[Store], make_plan: MakePlan, *, buffer: int, seed: int, weights: Sequence[float] = ()
    ) -> None:
        self._make_plan, self._seed = make_plan, seed
        self._blocks = [(store, *block) for store in stores for block in _cut(store)]
        shares = weights or [1.0] * len(stores)
        self._parts = [CorpusPart(len(_cut(store)), share) for store, share in zip(stores, shares, strict=True)]
        self.num_portions = count_portions(stores, shares, buffer)

    def epoch(self, number: int) -> list[PortionRows]:
        """Read a portion; return its batches."""
        portion = self._read(number)
        plan = self._make_plan(portion)
        return [PortionRows(plan, rows) for rows in plan.epoch(number)]

    def _read(self, number: int) -> Store:
        one_pass, place = divmod(number, self.num_portions)
        drawn = draw_rows(self._parts, np.random.default_rng([self._seed, one_pass]))
        own = np.array_split(drawn, self.num_portions)[place]
        return _join([self._blocks[block] for block in own])

    @staticmethod
    def load(drawn: PortionRows) -> Any:
        return drawn.plan.load(drawn.rows)


def count_portions(stores: Sequence[Store], weights: Sequence[float], buffer: int) -> int:
    """Return how many portions of `buffer` pairs a pass through the corpora has."""
    return max(1, math.ceil(sum(len(store) * weight for store, weight in zip(stores, weights, strict=True)) / buffer))


def _cut(store: Store) -> list[tuple[int, int]]:
    """Return the first rows of a store's blocks, and the rows behind their last."""
    size = max(1, min(BLOCK, len(store) // FEWEST_BLOCKS))
    return [(first, min(first + size, len(store))) for first in range(0, len(store), size)]


def _join(blocks: Sequence[tuple[Store, int, int]]) -> Store:
    """Read neighbouring rows of stores into memory, as one store."""
    source, target = (
        join_rows([getattr(store, side).read(first, last) for store, first, last in blocks])
        for side in ("source", "target")
    )
    nothing: NDArray[np.uint64] = np.zeros(0, np.uint64)
    return Store(source, target, nothing, {}, {}, "")
