"""Half-precision copies of a model's weights, made all at once when a pass begins: weights change only after it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any, NamedTuple, Self, cast, final

import torch
from torch import Tensor

from saccade.ops.pass_context import CURRENT, Override


class _Copies(NamedTuple):
    """The weights and biases of one linear layer, and their copies: a matrix of all weights, a vector of all biases."""

    weights: list[Tensor]
    biases: list[Tensor]
    narrow: list[Tensor]

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        sides = zip((self.weights, self.biases), self.narrow, strict=False)
        return [pair for side, to in sides for pair in zip(side, to.split([len(x) for x in side]), strict=True)]


@final
class HalfWeights:
    """Passes over a model: the first notes which weights are read, and every later one begins with a copy of them.

    If it `lasts`, a pass copies only when weights have changed and their copies have not.
    """

    def __init__(self) -> None:
        self.lasts = False
        self._found: dict[Hashable, _Copies] = {}
        self._copy: Any = None
        self._versions: list[int] = []  # of the weights that were copied
        self._override = Override(half_weights=self)

    def __enter__(self) -> Self:
        self._override.__enter__()
        if self._found and self._copy is None:
            from saccade.ops.kernels.narrow import Copy

            self._copy = Copy([pair for copies in self._found.values() for pair in copies.pairs()])
        self.renew()
        return self

    def __exit__(self, *_: object) -> None:
        self._override.__exit__()

    @property
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each weight or bias with its copy, as soon as there are copies."""
        return [] if self._copy is None else cast(list[tuple[Tensor, Tensor]], self._copy.pairs)

    @property
    def is_fresh(self) -> bool:
        """True if every copy is up to date. A write through `.data` is not seen."""
        return self._versions == [weight._version for weight, _ in self.pairs]

    def renew(self) -> None:
        """Copy the weights, unless the copies last and are up to date."""
        if self._copy is not None and not (self.lasts and self.is_fresh):
            self._copy()
            self._versions = [weight._version for weight, _ in self.pairs]

    def mark_written(self, copies: Collection[int]) -> None:
        """Note that weights have changed and the copies at these addresses with them."""
        known = zip(self.pairs, self._versions, strict=True)
        self._versions = [w._version if copy.data_ptr() in copies else version for (w, copy), version in known]

    def find(self, weights: Sequence[Tensor], biases: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        """Return the copies of these in `dtype`, if the first pass has read them; the first pass notes them."""
        key = (dtype, *((tensor.data_ptr(), tensor.shape) for tensor in (*weights, *biases)))
        if self._copy is not None:
            return self._found[key].narrow if key in self._found else []
        if weights[0].dtype == torch.float32 != dtype and all(x.is_contiguous() for x in (*weights, *biases)):
            height, width = sum(map(len, weights)), weights[0].shape[1]
            shapes = [(height, width), *([(height,)] if biases else [])]
            narrow = [weights[0].new_empty(shape, dtype=dtype) for shape in shapes]
            self._found[key] = _Copies([*weights], [*biases], narrow)
        return []


def current_copies(weights: Sequence[Tensor], biases: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return the weights below each other, and the biases, in `dtype`, if this pass began with a copy of them."""
    half_weights = CURRENT.half_weights
    return [] if half_weights is None else half_weights.find(weights, biases, dtype)
