"""Cuts rows into batches of like length, within a budget of padded tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def group_by_length(
    sizes: Sequence[tuple[int, ...]],
    budget: int,
    *,
    cost: Callable[..., float] = lambda count, *longest: count * math.prod(longest),
    counts: Sequence[int] | None = None,
) -> Iterator[list[int]]:
    """Yield the numbers of rows of like sizes, in batches that cost at most the budget or have one row.

    A row has a size for each of its sides. `cost(number of rows, longest first side, ...)` is the product of its
    arguments, if no other is given. With `counts`, a row counts as that many.
    """
    batch, count, longest = list[int](), 0, tuple[int, ...]()
    for row in sorted(range(len(sizes)), key=sizes.__getitem__):
        own = 1 if counts is None else counts[row]
        longer = tuple(map(max, longest, sizes[row])) if batch else sizes[row]
        if batch and cost(count + own, *longer) > budget:
            yield batch
            batch, count, longer = [], 0, sizes[row]
        batch.append(row)
        count, longest = count + own, longer
    if batch:
        yield batch


def split_by_budget(width: NDArray[np.integer], budget: int) -> Iterator[slice]:
    """Yield the longest runs of neighbours whose number times their greatest width stays within the budget.

    Unlike `group_by_length` it sorts nothing and takes millions of rows; none may be wider than the budget.
    """
    start, numbers = 0, np.arange(1, budget + 1)
    while start < len(width):
        widest = np.maximum.accumulate(width[start : start + budget // int(width[start])])
        padded = widest * numbers[: len(widest)]
        run = slice(start, start + int(np.searchsorted(padded, budget, side="right")))
        yield run
        start = run.stop
