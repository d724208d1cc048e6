"""The pairs of queries and keys that meet, and dropout of weights, as kernels in CUDA C++ read them."""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

from torch import Tensor

from saccade.attention.call import Call
from saccade.ops.kernels.nvrtc import pointer

UNBOUNDED = 1 << 30


class Allowed(ctypes.Structure):
    """The pairs that may meet, as a C++ struct."""

    _fields_ = [
        ("bytes", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("inner", "outer", "inner_stride", "t", "s", "low", "high")),
    ]


class Drawing(ctypes.Structure):
    """The dropout of weights, as a C++ struct."""

    _fields_ = [("seed", ctypes.c_void_p), ("threshold", ctypes.c_uint32), ("kept", ctypes.c_float)]


class Scope(NamedTuple):
    """The keys a query may see: low <= s - t <= high, and booleans [B / inner or 1, inner or 1, T or 1, S or 1]."""

    low: int | None = None
    high: int | None = None
    mask: Tensor | None = None
    inner: int = 1

    def struct(self) -> Allowed:
        low = -UNBOUNDED if self.low is None else self.low
        high = UNBOUNDED if self.high is None else self.high
        if self.mask is None:
            return Allowed(None, 1, 0, 0, 0, 0, low, high)
        strides = (stride if size > 1 else 0 for size, stride in zip(self.mask.shape, self.mask.stride(), strict=True))
        return Allowed(pointer(self.mask), self.inner, *strides, low, high)

    def swap_axes(self, outer: int) -> Scope:
        """Return the same for entries in the other order: the inner of both axes leads."""
        return self._replace(mask=None if self.mask is None else self.mask.transpose(0, 1), inner=outer)


def scope_of(call: Call) -> Scope:
    """Return the mask as a kernel reads it: the band alone, or also booleans no larger than they must be."""
    low, high = call.mask.band
    if call.mask.is_band:
        return Scope(low, high)
    mask, leading = call.dense_mask(), call.leading
    assert mask is not None
    own = (*(1,) * (len(leading) + 2 - mask.dim()), *mask.shape)
    mask = mask.view(own)
    outer, inner = (leading[:1], leading[1:]) if len(leading) > 1 else (leading, ())
    if len(leading) > 2 and any(size > 1 for size in own[1:-2]):
        mask = mask.expand(*own[:1], *inner, *own[-2:])  # several inner axes: one, written out
    folded = mask.reshape(math.prod(own[:1]) if outer else 1, -1, *own[-2:])
    return Scope(low, high, folded, math.prod(inner))


class Dropout(NamedTuple):
    """A share of weights left out, drawn from a seed [1] (int64) for each pair."""

    share: float = 0.0
    seed: Tensor | None = None

    def struct(self) -> Drawing:
        return Drawing(pointer(self.seed), round(self.share * (1 << 32)), 1 / (1 - self.share))


class AdditiveInputs(NamedTuple):
    """The arguments of every operator of additive attention: tensors, the fields of a scope, those of a dropout.

    B counts batch entries and heads, A is the hidden width. v may be one for all, [1, A].
    """

    query_BTA: Tensor
    key_BSA: Tensor
    v_BA: Tensor
    value_BSD: Tensor
    mask: Tensor | None
    low: int | None
    high: int | None
    inner: int
    share: float
    seed: Tensor | None

    @property
    def scope(self) -> Scope:
        """Return the keys that each query may see."""
        return Scope(self.low, self.high, self.mask, self.inner)

    @property
    def dropout(self) -> Dropout:
        """Return the dropout of weights."""
        return Dropout(self.share, self.seed)


NO_OPTION_GRADIENTS = (None,) * (len(AdditiveInputs._fields) - 4)  # for all but query, key, v and value


class ScopePart(NamedTuple):
    """The scope and dropout of a part of the pairs, which begins at a batch entry and a query."""

    scope: Scope
    dropout: Dropout
    first_n: int = 0
    first_t: int = 0
