"""Weights in half precision, copied all at once at the beginning of a pass: they don't change before its end."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self, cast, final

import torch
from torch import Tensor


class _Copies(NamedTuple):
    """What one linear layer asked for: its weights and biases, and where all of either lie below each other."""

    weights: list[Tensor]
    biases: list[Tensor]
    narrow: list[Tensor]

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each tensor, and its place."""
        sides = zip((self.weights, self.biases), self.narrow, strict=False)
        return [pair for side, to in sides for pair in zip(side, to.split([len(x) for x in side]), strict=True)]


class _Current(threading.local):
    narrowing: Narrowing | None = None


_CURRENT = _Current()


@final
class Narrowing:
    """Passes over a model: the first notes what is asked for, all later ones begin with a copy of it.

    If it `lasts`, there is a copy only where weights were changed by somebody who hasn't written their copies, too.
    """

    def __init__(self) -> None:
        self.lasts = False
        self._found: dict[Hashable, _Copies] = {}
        self._copy: Any = None
        self._versions: list[int] = []  # of the weights that were copied
        self._outer: Narrowing | None = None

    def __enter__(self) -> Self:
        self._outer, _CURRENT.narrowing = _CURRENT.narrowing, self
        if self._found and self._copy is None:
            from saccade.ops.kernels.narrow import Copy

            self._copy = Copy([pair for copies in self._found.values() for pair in copies.pairs()])
        self.renew()
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.narrowing = self._outer

    @property
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each weight or bias and its copy, as soon as there are copies."""
        return [] if self._copy is None else cast(list[tuple[Tensor, Tensor]], self._copy.pairs)

    @property
    def is_fresh(self) -> bool:
        """Whether copies are what weights are. A write through `.data` is not seen."""
        return self._versions == [weight._version for weight, _ in self.pairs]

    def renew(self) -> None:
        """Copy, if need be."""
        if self._copy is not None and not (self.lasts and self.is_fresh):
            self._copy()
            self._versions = [weight._version for weight, _ in self.pairs]

    def written(self, copies: Collection[int]) -> None:
        """Weights have been changed, and their copies with them: those at these addresses."""
        known = zip(self.pairs, self._versions, strict=True)
        self._versions = [w._version if copy.data_ptr() in copies else version for (w, copy), version in known]

    def asked(self, weights: Sequence[Tensor], biases: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        """Weights and biases in `dtype`, if they were asked for in the first pass."""
        key = (dtype, *((tensor.data_ptr(), tensor.shape) for tensor in (*weights, *biases)))
        if self._copy is not None:
            return self._found[key].narrow if key in self._found else []
        if weights[0].dtype == torch.float32 != dtype and all(x.is_contiguous() for x in (*weights, *biases)):
            height, width = sum(map(len, weights)), weights[0].shape[1]
            shapes = [(height, width), *([(height,)] if biases else [])]
            narrow = [weights[0].new_empty(shape, dtype=dtype) for shape in shapes]
            self._found[key] = _Copies([*weights], [*biases], narrow)
        return []


def narrow_now(weights: Sequence[Tensor], biases: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Weights below each other, and biases, in `dtype`, if this pass began with a copy of them."""
    narrowing = _CURRENT.narrowing
    return [] if narrowing is None else narrowing.asked(weights, biases, dtype)


@contextmanager
def as_they_are() -> Iterator[None]:
    """Layers in here want their weights as they are."""
    outer, _CURRENT.narrowing = _CURRENT.narrowing, None
    try:
        yield
    finally:
        _CURRENT.narrowing = outer
