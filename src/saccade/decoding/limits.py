"""Finds limits of outputs in the training pairs, so that none cuts what these show to be normal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.decoding.constraints import LONGEST_BLOCK, SHORTEST_LOOP
from saccade.decoding.options import DecodingOptions

ROOM = 1.5  # an output may be so many times as long, and go round so many times as often, as targets to train on
NORMAL = 0.999  # the share of pairs whose lengths are normal: others may be mistakes in the data
NORMAL_ROUNDS = 0.9999
NUM_FACTORS = 64  # that are tried
Integers = NDArray[np.integer]


class PairLengths(NamedTuple):
    """The different lengths that pairs have, as decoding counts them, </s> included, and how many pairs have them."""

    source_P: Integers
    target_P: Integers
    count_P: Integers

    @classmethod
    def of(cls, source_N: Integers, target_N: Integers, count_N: Integers | None = None) -> PairLengths:
        """Count the lengths of pairs; each may stand for several."""
        size = int(target_N.max(initial=0)) + 1
        both_P, place_N = np.unique(source_N.astype(np.int64) * size + target_N, return_inverse=True)
        count_P = np.bincount(place_N, count_N, len(both_P)).astype(np.int64)
        return cls(both_P // size, both_P % size, count_P)

    @classmethod
    def join(cls, parts: Iterable[PairLengths]) -> PairLengths:
        """Return the lengths of all parts together."""
        return cls.of(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    @property
    def num_pairs(self) -> int:
        return int(self.count_P.sum())

    def sums(self) -> tuple[int, int]:
        """Return how many tokens the sources have, and the targets."""
        return int(self.source_P @ self.count_P), int(self.target_P @ self.count_P)

    @property
    def longest(self) -> tuple[int, int]:
        """The most tokens of a source, and of a target."""
        return int(self.source_P.max()), int(self.target_P.max())

    def quantile(self, value_P: NDArray[np.floating]) -> float:
        """Return the least of these values that is not below the normal share of them."""
        order_P = value_P.argsort(kind="stable")
        covered_P = self.count_P[order_P].cumsum()
        return float(value_P[order_P[np.searchsorted(covered_P, math.ceil(NORMAL * covered_P[-1]))]])

    def extra(self, factor: float) -> int:
        """Return how many tokens more than `factor` times its source nearly no target has, with room."""
        return math.ceil(self.quantile(ROOM * self.target_P - factor * self.source_P))


class LengthLimits(NamedTuple):
    """An output has at most `factor` ids for each id of its source, and `extra` more."""

    factor: float
    extra: int


def fit_lengths(corpora: Sequence[PairLengths], extra: int | None = None) -> LengthLimits:
    """Find the lowest line over nearly all pairs of each corpus, with room above them.

    It rises at least as the mean target does with its source, so that longer sources than these have room too; and
    no extra is below the usual one. `extra` may be given.
    """
    source_sum, target_sum = map(sum, zip(*(pairs.sums() for pairs in corpora), strict=True))
    count = sum(pairs.num_pairs for pairs in corpora)
    least_extra = DecodingOptions.max_length_extra if extra is None else extra
    least = ROOM * target_sum / source_sum
    most = max(least, *(one.quantile((ROOM * one.target_P - least_extra) / one.source_P) for one in corpora))
    if extra is not None:
        return LengthLimits(_round_up(most), extra)
    factors = [_round_up(factor) for factor in np.linspace(least, most, NUM_FACTORS)]
    lines = [LengthLimits(factor, max(least_extra, *(one.extra(factor) for one in corpora))) for factor in factors]
    return min(lines, key=lambda line: line.factor * source_sum + line.extra * count)


def _round_up(factor: float) -> float:
    """Return a factor with three digits that is not lower."""
    step = 10.0 ** (math.floor(math.log10(factor)) - 2)
    return float(f"{math.ceil(round(factor / step, 6)) * step:.3g}")


def find_rounds(targets: Iterable[tuple[Integers, NDArray[np.int64]]]) -> int:
    """Return how often nearly all targets go round the same few ids at most; 0: they don't.

    They come in blocks (ids, offsets): target n of a block is `ids[offsets[n] : offsets[n + 1]]`.
    """
    count_R = np.zeros(1, np.int64)  # targets that go round so often
    for ids, offsets in targets:
        own_R = np.bincount(_count_rounds(ids, offsets), minlength=len(count_R))
        own_R[: len(count_R)] += count_R
        count_R = own_R
    return int(np.searchsorted(count_R.cumsum(), math.ceil(NORMAL_ROUNDS * count_R.sum())))


def choose_max_rounds(rounds: int) -> int:
    """Return the limit for outputs like targets that go round so often."""
    return max(DecodingOptions.max_rounds, math.ceil(ROOM * rounds))


def _count_rounds(ids: Integers, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the most rounds of each row, of those that are long enough to be a loop."""
    round_N = np.zeros(len(offsets) - 1, np.int64)
    for block in range(1, min(LONGEST_BLOCK, len(ids) - 1) + 1):
        same = ids[block:] == ids[:-block]
        crossing = offsets[1:-1, None] - np.arange(1, block + 1)  # what compares two rows
        same[crossing.clip(0, len(same) - 1)] = False
        at = same.nonzero()[0]
        if not len(at):
            continue
        ends = (np.diff(at) != 1).nonzero()[0]
        first, last = at[np.append(0, ends + 1)], at[np.append(ends, len(at) - 1)]
        length = last - first + 1 + block
        is_loop = length >= SHORTEST_LOOP
        row = np.searchsorted(offsets, first[is_loop], "right") - 1
        np.maximum.at(round_N, row, length[is_loop] // block)
    return round_N
