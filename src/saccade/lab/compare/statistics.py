"""Intervals and tests for scores of several seeds on one set: paired bootstrap, and permutation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from saccade.tasks.tally import COMBINE, Numbers

DRAWS, CHUNK = 2000, 100  # samples, and how many are held at once
LEVEL = 0.95


class VariantRuns(NamedTuple):
    """The runs of one variant: their scores and, where the task tells them, the addends of each example."""

    scores: Sequence[float]
    row_RNK: Numbers | None = None
    combine: str = "ratio"


class Estimate(NamedTuple):
    """A value with the interval that holds 95% of what other examples and seeds would give."""

    value: float
    low: float
    high: float


class Difference(NamedTuple):
    """The difference of two variants' scores, and the probability of as much by chance."""

    by: Estimate
    p: float


def draw_again(samples: Sequence[VariantRuns], seed: int = 1) -> Numbers:
    """Bootstrap the mean score of each sample, [V, draws]: the same examples for all (Koehn 2004), seeds for each."""
    random = np.random.default_rng(seed)
    if any(one.row_RNK is None for one in samples):
        by_seed = [np.tile(one.scores, (DRAWS, 1)) for one in samples]
    else:
        rows = [one.row_RNK for one in samples if one.row_RNK is not None]
        num_examples = rows[0].shape[1]
        parts: list[list[Numbers]] = [[] for _ in rows]
        for _ in range(DRAWS // CHUNK):
            times_CN = random.multinomial(num_examples, np.full(num_examples, 1 / num_examples), CHUNK).astype(float)
            for own, row_RNK, sample in zip(parts, rows, samples, strict=True):
                own.append(COMBINE[sample.combine](np.einsum("cn,rnk->crk", times_CN, row_RNK, optimize=True)))
        by_seed = [np.concatenate(own) for own in parts]
    means = []
    for score_CR in by_seed:
        chosen_CR = random.integers(score_CR.shape[1], size=score_CR.shape)
        means.append(np.take_along_axis(score_CR, chosen_CR, 1).mean(1))
    return np.stack(means)


def interval(value: float, drawn: Numbers) -> Estimate:
    """Return a value with the interval of its draws."""
    tail = 50 * (1 - LEVEL)
    return Estimate(value, float(np.percentile(drawn, tail)), float(np.percentile(drawn, 100 - tail)))


def permute(one: VariantRuns, other: VariantRuns, seed: int = 1) -> float:
    """Return p of a difference of means as large: outputs swapped by example, or seeds where there are no examples.

    Riezler & Maxwell 2005, section 3.
    """
    found = abs(float(np.mean(one.scores) - np.mean(other.scores)))
    swaps = _swap_seeds(one, other, seed) if one.row_RNK is None else _swap_examples(one, other, seed)
    differences = np.fromiter(swaps, float)
    return float((1 + np.sum(np.abs(differences) >= found - 1e-9)) / (1 + len(differences)))


def _swap_examples(one: VariantRuns, other: VariantRuns, seed: int) -> Iterator[float]:
    assert one.row_RNK is not None
    assert other.row_RNK is not None
    random, gap_RNK = np.random.default_rng(seed), other.row_RNK - one.row_RNK
    sums_RK, other_sums_RK, combine = one.row_RNK.sum(1), other.row_RNK.sum(1), COMBINE[one.combine]
    for _ in range(DRAWS // CHUNK):
        swapped_CN = random.integers(2, size=(CHUNK, gap_RNK.shape[1])).astype(float)
        moved_CRK = np.einsum("cn,rnk->crk", swapped_CN, gap_RNK, optimize=True)
        yield from (combine(sums_RK + moved_CRK) - combine(other_sums_RK - moved_CRK)).mean(1)


def _swap_seeds(one: VariantRuns, other: VariantRuns, seed: int) -> Iterator[float]:
    """Deal all scores to two hands in every way, or in many ways where there are too many."""
    scores, size = np.array([*one.scores, *other.scores]), len(one.scores)
    if math.comb(len(scores), size) <= DRAWS:
        hands: Iterator[Sequence[int]] = iter(itertools.combinations(range(len(scores)), size))
        next(hands)  # what was found is counted already
    else:
        random = np.random.default_rng(seed)
        hands = (random.permutation(len(scores))[:size].tolist() for _ in range(DRAWS))
    for hand in hands:
        yield float(scores[list(hand)].mean() - np.delete(scores, list(hand)).mean())


def correct(probabilities: Sequence[float]) -> list[float]:
    """Return p as large as several tests at once make it (Holm 1979)."""
    corrected, largest = list(probabilities), 0.0
    for rank, place in enumerate(np.argsort(probabilities, kind="stable").tolist()):
        largest = max(largest, min(1.0, (len(probabilities) - rank) * probabilities[place]))
        corrected[place] = largest
    return corrected
