"""Limits found in training pairs: none cuts what these show to be normal, and runaways are bounded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from saccade.decoding import DecodingOptions
from saccade.decoding.constraints import before_loop
from saccade.decoding.limits import LengthLimits, PairLengths, choose_max_rounds, find_rounds, fit_lengths

RANDOM = np.random.default_rng(5)


def lengths(source: tuple[int, int], target: tuple[int, int], count: int = 4000) -> PairLengths:
    """Pairs whose lengths have nothing to do with each other."""
    return PairLengths.of(RANDOM.integers(*source, count), RANDOM.integers(*target, count))


def growing(factor: float, spread: int, count: int = 4000) -> PairLengths:
    """Pairs whose targets grow with their sources."""
    source_N = RANDOM.integers(3, 60, count)
    return PairLengths.of(source_N, (factor * source_N).astype(int) + RANDOM.integers(1, spread, count))


def longest(limits: LengthLimits, source: int) -> int:
    """The longest output of a source that decoding allows."""
    return DecodingOptions(max_length_factor=limits.factor, max_length_extra=limits.extra).limit(source)


KINDS = {  # pairs, and the longest output of their mean source, times that of the longest target
    "translations": (growing(1.0, 5), 1.5),
    "commands to actions": (lengths((2, 11), (2, 50)), 3.0),
    "long answers to short questions": (lengths((4, 15), (50, 200)), 2.5),
    "labels of long texts": (lengths((50, 250), (2, 4)), 5.0),
    "subjects of mails": (lengths((30, 250), (3, 15)), 2.5),
    "inflections": (growing(1.0, 4), 1.5),
    "frames to words": (PairLengths.of(RANDOM.integers(80, 3000, 4000), RANDOM.integers(2, 30, 4000)), 2.5),
    "one pair": (PairLengths.of(np.array([3]), np.array([40])), 2.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_target_has_half_as_much_room_again_and_a_runaway_has_little_more(kind: str) -> None:
    pairs, most = KINDS[kind]
    found = fit_lengths([pairs])
    allowed = np.array([longest(found, int(source)) for source in pairs.source_P])
    short = allowed < np.floor(1.5 * pairs.target_P)
    assert pairs.count_P[short].sum() <= 0.001 * pairs.num_pairs
    assert (allowed >= pairs.target_P).all()
    assert np.average(allowed, weights=pairs.count_P) <= most * pairs.target_P.max()


def test_sources_longer_than_any_before_may_be_answered_at_length() -> None:
    for factor in (0.3, 1.0, 3.0):
        assert longest(fit_lengths([growing(factor, 5)]), 500) >= 1.4 * factor * 500


def test_few_wrong_pairs_change_little() -> None:
    right, wrong = growing(1.0, 5), PairLengths.of(np.array([3, 3, 4]), np.array([250, 251, 252]))
    found = fit_lengths([PairLengths.join([right, wrong])])
    assert longest(found, 10) < 40
    assert longest(fit_lengths([right]), 10) <= longest(found, 10)


def test_a_small_corpus_beside_a_large_one_keeps_its_lengths() -> None:
    small = PairLengths.of(np.array([5, 6]), np.array([90, 95]))
    assert longest(fit_lengths([growing(1.0, 5, 100_000), small]), 5) >= 135


def test_an_extra_that_is_given_is_kept() -> None:
    pairs = lengths((4, 15), (50, 200))
    found = fit_lengths([pairs], extra=20)
    assert found.extra == 20
    assert longest(found, 14) > longest(fit_lengths([pairs]), 14)  # a steep line must pass over short sources
    assert (np.floor(found.factor * pairs.source_P + 20) >= pairs.target_P).all()


def rounds(*targets: list[int]) -> int:
    return find_rounds([block(targets)])


def block(targets: Sequence[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return np.array([one for target in targets for one in target], np.int32), np.cumsum([0, *map(len, targets)])


def test_rounds_are_counted_where_a_loop_would_be_cut() -> None:
    assert rounds([3, 4] * 16, [5]) == 16
    assert rounds([3, 4] * 15, [3, 4] * 15) == 0  # each is too short; together they are two
    assert rounds([7, *[5] * 31, 7], list(range(100))) == 0
    assert rounds([7, *[5] * 33, 7]) == 33
    assert rounds([9, *range(3, 19), *range(3, 19), *range(3, 11)]) == 2
    assert rounds([*range(17)] * 9) == 0  # longer blocks are no loop
    assert rounds([3], [4], [5]) == rounds() == 0
    assert choose_max_rounds(0) == choose_max_rounds(5) == 8
    assert choose_max_rounds(24) == 36


def test_no_target_is_cut_by_the_rounds_that_targets_go() -> None:
    blocks = [RANDOM.integers(3, 5, size).tolist() for size in (1, 2, 3, 5, 16)]
    for block, times in itertools.product(blocks, range(2, 60)):
        target = [9, *block * times, *block[:1]]
        assert before_loop(target, choose_max_rounds(rounds(target))) == len(target)


def test_rounds_of_many_targets_are_counted_part_by_part() -> None:
    targets = [RANDOM.integers(3, 9, size).tolist() for size in RANDOM.integers(1, 40, 50)]
    targets[31] = [3, 4, 5] * 13
    parts = [block(targets[first : first + 7]) for first in range(0, 50, 7)]
    assert find_rounds(parts) == rounds(*targets) == 13


def test_few_targets_that_go_round_are_no_rule() -> None:
    targets = [[3, 4, 5]] * 30_000
    assert rounds(*targets, [3] * 200, [3] * 90) == 0
    assert rounds(*targets[:100], [3] * 200, [3] * 90) == 200
