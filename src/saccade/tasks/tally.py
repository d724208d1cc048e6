"""Contributions of each example to the score of a set: from them the score of any other draw of examples is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
BLEU_ORDERS = 4


class Tally(NamedTuple):
    """A metric, and the numbers of each example whose sums it is made of."""

    metric: str
    row_NK: Numbers
    combine: str = "ratio"
    is_error: bool = False  # less is better

    def plain(self) -> dict[str, Any]:
        return self._asdict() | {"row_NK": self.row_NK.tolist()}


def ratio(sums: Numbers) -> Numbers:
    """Return 100 a / b of sums (a, b): accuracy, word errors, and F1 = 2 right / (true + found)."""
    return 100 * sums[..., 0] / np.maximum(sums[..., 1], 1e-9)


def bleu(sums: Numbers) -> Numbers:
    """Return BLEU of sums (length, length of the reference, four of right n-grams, four of all) as sacreBLEU does.

    Where an order has no n-gram right, its precision is 1 / 2, 1 / 4 ... of one n-gram (Chen 2014, smoothing 3).
    """
    length, wanted, right, every = sums[..., 0], sums[..., 1], sums[..., 2:6], sums[..., 6:10]
    halved, log_sum = np.ones_like(length), np.zeros_like(length)
    for order in range(BLEU_ORDERS):
        halved = np.where(right[..., order] == 0, 2 * halved, halved)
        hits = np.where(right[..., order] == 0, 1 / halved, right[..., order])
        log_sum += np.log(hits / np.maximum(every[..., order], 1e-9))
    brevity = np.minimum(0.0, 1 - wanted / np.maximum(length, 1e-9))
    some = (right.sum(-1) > 0) & (every.min(-1) > 0)
    return np.where(some, 100 * np.exp(brevity + log_sum / BLEU_ORDERS), 0.0)


COMBINE: Mapping[str, Callable[[Numbers], Numbers]] = {"ratio": ratio, "bleu": bleu}
