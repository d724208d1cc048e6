"""Seeds of random numbers, drawn all at once at the beginning of a pass: one launch instead of one a dropout."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Self, final

import torch
from torch import Tensor

AT_ONCE = 256  # more than models have dropouts; one that has more draws the rest singly


class _Current(threading.local):
    seeds: Seeds | None = None


_CURRENT = _Current()


@final
class Seeds:
    """Passes over a model on a device. All begin alike, so that what they draw follows from torch's seed alone."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._place = device, device  # that of tensors has a number
        self._left: Iterator[Tensor] = iter(())
        self._outer: Seeds | None = None

    def __enter__(self) -> Self:
        # two of 8 bytes each: a seed begins at 16 bytes, as one that is allocated does
        seed_N2 = torch.empty(AT_ONCE, 2, dtype=torch.int64, device=self.device).random_()
        self._place, self._left = seed_N2.device, (seed_N2[number, :1] for number in range(AT_ONCE))
        self._outer, _CURRENT.seeds = _CURRENT.seeds, self
        return self

    def __exit__(self, *_: object) -> None:
        self._left, _CURRENT.seeds = iter(()), self._outer

    def next(self, device: torch.device) -> Tensor | None:
        """One that nobody else gets, [1], if one is left."""
        return next(self._left, None) if device == self._place else None


@final
class _Apart:
    def __enter__(self) -> None:
        self._outer, _CURRENT.seeds = _CURRENT.seeds, None

    def __exit__(self, *_: object) -> None:
        _CURRENT.seeds = self._outer


def singly() -> tuple[_Apart, _Apart]:
    """For `checkpoint`: both of its passes draw from torch's generator, which it sets back between them.

    The training loop doesn't capture what is made again; who uses `Seeds` otherwise may.
    """
    return _Apart(), _Apart()


def seed_now(device: torch.device) -> Tensor | None:
    """One of the seeds that this pass began with, [1]."""
    return None if _CURRENT.seeds is None else _CURRENT.seeds.next(device)
