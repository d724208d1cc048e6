"""Seeds of random numbers, drawn all at once at the beginning of a pass: one launch instead of one a dropout."""

from __future__ import annotations

import threading
from typing import Self, final

import torch
from torch import Tensor


class _Current(threading.local):
    seeds: Seeds | None = None


_CURRENT = _Current()


@final
class Seeds:
    """Passes over a model: each begins by drawing as many seeds as the one before asked for, the first draws singly."""

    def __init__(self) -> None:
        self.count = 0  # of this pass, so far
        self._device: torch.device | None = None
        self._drawn: list[Tensor] = []

    def __enter__(self) -> Self:
        if self.count:  # two of 8 bytes each: a seed begins at 16 bytes, as one that is allocated does
            seed_N2 = torch.empty(self.count, 2, dtype=torch.int64, device=self._device).random_()
            self._drawn = [seed_2[:1] for seed_2 in seed_N2.unbind()]
        self.count, _CURRENT.seeds = 0, self
        return self

    def __exit__(self, *_: object) -> None:
        self._drawn, _CURRENT.seeds = [], None

    def next(self, device: torch.device) -> Tensor | None:
        """One that nobody else gets, [1], if one is left."""
        if self._device not in (None, device):
            return None
        self.count, self._device = self.count + 1, device
        return self._drawn.pop() if self._drawn else None


@final
class _Apart:
    def __enter__(self) -> None:
        self._outer, _CURRENT.seeds = _CURRENT.seeds, None

    def __exit__(self, *_: object) -> None:
        _CURRENT.seeds = self._outer


def singly() -> tuple[_Apart, _Apart]:
    """For `checkpoint`: both of its passes draw from torch's generator, which it sets back between them."""
    return _Apart(), _Apart()


def seed_now(device: torch.device) -> Tensor | None:
    """One of the seeds that this pass began with, [1]."""
    return None if _CURRENT.seeds is None else _CURRENT.seeds.next(device)
