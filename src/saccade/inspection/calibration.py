"""Calibration: maps from what a model says to how often it is right, and how far the two are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 10
STEPS = 100  # of Newton's method at most
PRIOR = 1.0  # weight of the map that changes nothing, beside one for each word: few words change little
CLIP = 1e-6
SMALL = 1e-9
FLATTEST = 1e-3  # the least slope: words keep their order
Floats = NDArray[np.float64]


class Bin(NamedTuple):
    """Answers of about the same confidence: their number, their mean confidence, and the share that is right."""

    num_answers: int
    confidence: float
    right: float


class WordMap(NamedTuple):
    """σ(logit(p) / temperature + offset): the order of words stays, their probabilities become shares (Platt 1999)."""

    temperature: float
    offset: float

    def __call__(self, p: Floats) -> Floats:
        return _sigmoid(_logit(p) / self.temperature + self.offset)


class MonotoneMap(NamedTuple):
    """A map that rises, straight between its knots and flat beyond them."""

    at: tuple[float, ...]
    value: tuple[float, ...]

    def __call__(self, x: Floats) -> Floats:
        return np.interp(x, self.at, self.value)


def fit_words(p: Floats, right: Floats) -> WordMap:
    """Fit temperature and offset by the log loss, with Newton's method; a map that turned the order is refused."""
    x, found = _logit(p), np.array([1.0, 0.0])  # slope and offset
    for _ in range(STEPS):
        said = _sigmoid(found[0] * x + found[1])
        pull = np.array([((said - right) * x).sum(), (said - right).sum()]) + PRIOR * (found - [1.0, 0.0])
        weight = said * (1 - said)
        cross = (weight * x).sum()
        bend = np.array([[(weight * x * x).sum() + PRIOR, cross], [cross, weight.sum() + PRIOR]])
        step = np.linalg.solve(bend, pull)
        while _loss(found - step, x, right) > _loss(found, x, right) and np.abs(step).max() > SMALL:
            step = step / 2  # it went too far, where said is nearly 0 or 1
        found = found - step
        if np.abs(step).max() <= SMALL:
            break
    return WordMap(float(1 / max(found[0], FLATTEST)), float(found[1]))


def _loss(found: Floats, x: Floats, right: Floats) -> float:
    """Return the log loss of a slope and an offset, and what keeps both near to no change."""
    score = found[0] * x + found[1]
    return float((np.logaddexp(0.0, score) - right * score).sum() + PRIOR / 2 * ((found - [1.0, 0.0]) ** 2).sum())


def fit_monotone(x: Floats, y: Floats) -> MonotoneMap:
    """Fit the rising steps nearest to the values, by pooling neighbours that fall (Ayer 1955)."""
    blocks = list[tuple[float, float, int]]()  # the sums of x and y, and how many
    for one in np.argsort(x, kind="stable"):
        blocks.append((float(x[one]), float(y[one]), 1))
        while len(blocks) > 1 and blocks[-2][1] / blocks[-2][2] >= blocks[-1][1] / blocks[-1][2]:
            after, before = blocks.pop(), blocks.pop()
            blocks.append((before[0] + after[0], before[1] + after[1], before[2] + after[2]))
    return MonotoneMap(tuple(a / count for a, _, count in blocks), tuple(b / count for _, b, count in blocks))


def make_bins(confidence: Floats, right: Floats) -> list[Bin]:
    """Put answers into bins of equal widths; empty ones are left out."""
    number = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
    chosen = [number == one for one in range(NUM_BINS)]
    return [Bin(int(one.sum()), float(confidence[one].mean()), float(right[one].mean())) for one in chosen if one.any()]


def expected_error(bins: Sequence[Bin]) -> float:
    """Return Σ n_b / n |confidence_b - right_b|, the expected calibration error (Guo 2017, equation 3)."""
    total = sum(one.num_answers for one in bins)
    return sum(one.num_answers * abs(one.confidence - one.right) for one in bins) / total if total else 0.0


def _logit(p: Floats) -> Floats:
    clipped = np.clip(p, CLIP, 1 - CLIP)
    return np.log(clipped) - np.log1p(-clipped)


def _sigmoid(x: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(x / 2))
