"""Finds limits of outputs in the training pairs, so that none cuts what these show to be normal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.decoding.constraints import LONGEST_BLOCK, SHORTEST_LOOP
from saccade.decoding.options import DecodingOptions

ROOM = 1.5  # an output may be so many times as long, and go round so many times as often, as targets to train on
NORMAL = 0.999  # the share of pairs whose lengths are normal: others may be mistakes in the data
NORMAL_ROUNDS = 0.9999
NUM_FACTORS = 64  # that are tried
IDS_AT_ONCE = 1 << 20
Integers = NDArray[np.integer]


class PairLengths(NamedTuple):
    """The lengths of the pairs of a corpus as decoding counts them, </s> included."""

    source_N: Integers
    target_N: Integers


class LengthLimits(NamedTuple):
    """An output has at most `factor` ids for each id of its source, and `extra` more."""

    factor: float
    extra: int


def fit_lengths(corpora: Sequence[PairLengths], extra: int | None = None) -> LengthLimits:
    """Find the lowest line over nearly all pairs of each corpus, with room above them.

    It rises at least as the mean target does with its source, so that longer sources than these have room too; and
    no extra is below the usual one. `extra` may be given.
    """
    source_sum, target_sum, count = (sum(int(n) for n in column) for column in zip(*map(_sums, corpora), strict=True))
    points = [_Points.of(pairs) for pairs in corpora]
    least_extra = DecodingOptions.max_length_extra if extra is None else extra
    least = ROOM * target_sum / source_sum
    most = max(least, *(one.quantile((ROOM * one.target_P - least_extra) / one.source_P) for one in points))
    if extra is not None:
        return LengthLimits(_round_up(most), extra)
    factors = [_round_up(factor) for factor in np.linspace(least, most, NUM_FACTORS)]
    lines = [LengthLimits(factor, max(least_extra, *(one.extra(factor) for one in points))) for factor in factors]
    return min(lines, key=lambda line: line.factor * source_sum + line.extra * count)


class _Points(NamedTuple):
    """The different lengths of pairs, and how many pairs have them."""

    source_P: Integers
    target_P: Integers
    count_P: Integers

    @classmethod
    def of(cls, pairs: PairLengths) -> _Points:
        size = int(pairs.target_N.max()) + 1
        both_P, count_P = np.unique(pairs.source_N.astype(np.int64) * size + pairs.target_N, return_counts=True)
        return cls(both_P // size, both_P % size, count_P)

    def quantile(self, value_P: NDArray[np.floating]) -> float:
        """Return the least of these values that is not below the normal share of them."""
        order_P = value_P.argsort(kind="stable")
        covered_P = self.count_P[order_P].cumsum()
        return float(value_P[order_P[np.searchsorted(covered_P, math.ceil(NORMAL * covered_P[-1]))]])

    def extra(self, factor: float) -> int:
        return math.ceil(self.quantile(ROOM * self.target_P - factor * self.source_P))


def _sums(pairs: PairLengths) -> tuple[int, int, int]:
    return int(pairs.source_N.sum()), int(pairs.target_N.sum()), len(pairs.source_N)


def _round_up(factor: float) -> float:
    """Return a factor with three digits that is not lower."""
    step = 10.0 ** (math.floor(math.log10(factor)) - 2)
    return float(f"{math.ceil(round(factor / step, 6)) * step:.3g}")


def find_rounds(steps: Integers, offsets: NDArray[np.int64]) -> int:
    """Return how often nearly all targets go round the same few ids at most; 0: they don't.

    Target n is `steps[offsets[n] : offsets[n + 1]]`.
    """
    if len(offsets) < 2:
        return 0
    round_N = np.zeros(len(offsets) - 1, np.int64)
    first = 0
    while first < len(round_N):
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + IDS_AT_ONCE, "right")) - 1)
        own = offsets[first : last + 1]
        round_N[first:last] = _count_rounds(np.asarray(steps[own[0] : own[-1]]), own - own[0])
        first = last
    return int(np.sort(round_N)[math.ceil(NORMAL_ROUNDS * len(round_N)) - 1])


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
