"""Scopes: which keys a query may attend to, as predicates over indices (True = may attend).

    masks.causal() & masks.padding(length_B)        both must allow
    masks.window(128) | masks.where(lambda t, s: s == 0)     either may allow
    (masks.causal() & masks.window(2)).dense(5, 5)  a [T, S] tensor, to look at

A mask's own batch axes are the query's *first* axes: `padding(length_B)` fits a query [B, T, D] and one
split into heads [B, H, T, K] alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from saccade.attention.masks.mask import Index, Local, Mask, Packing, same_start
from saccade.ops.precision import widen

__all__ = [
    "Index",
    "LocalP",
    "Mask",
    "Packing",
    "around",
    "causal",
    "dense",
    "document",
    "full",
    "local_m",
    "packed",
    "padding",
    "where",
    "window",
]


def full() -> Mask:
    """Allow every key: global attention."""
    return Mask(allows=lambda i: torch.ones_like(i.s, dtype=torch.bool), is_band=True, reads_query_step=False)


def causal(offset: int = 0) -> Mask:
    """Allow s <= t + offset: no query sees the future. With a cache of n earlier keys, `offset=n`."""
    return Mask(allows=lambda i: i.s <= i.t + offset, band=(None, offset), is_band=True)


def window(radius: int, offset: int = 0) -> Mask:
    """Allow |s - t| <= radius: restricted self-attention (Vaswani 2017, section 4), in O(radius * n * d).

    The window is 2 * radius + 1 keys wide, centred on the query's own position (plus `offset`).
    """
    if not isinstance(radius, int | torch.SymInt) or radius < 0:
        raise ValueError(f"radius: {radius} given; it must be a whole number, 0 or more")
    band = (offset - radius, offset + radius)
    return Mask(allows=lambda i: (i.s - i.t - offset).abs() <= radius, band=band, is_band=True)


def local_m(radius: int, step: int = 0) -> Mask:
    """Allow a window around the aligned position p_t = t: monotonic local attention (Luong 2015, section 3.2).

    A decoder that asks one query at a time names its position with `step`.
    """
    return window(radius, offset=step)


def padding(length: Tensor) -> Mask:
    """Allow s < length: keys beyond each sequence's own length are padding. `length` is [B] (or [B, H], ...)."""
    _need_integers("length", length)
    return Mask(
        allows=lambda i: i.s < i.pick(length),
        batch_shape=tuple(length.shape),
        reads_query_step=False,
        length=length if length.dim() == 1 else None,
    )


def document(query_id: Tensor, key_id: Tensor | None = None) -> Mask:
    """Allow equal ids: sequences packed into one row see only themselves. [B, T] and [B, S], or [T] and [S]."""
    key_ids = query_id if key_id is None else key_id
    for name, ids in (("query_id", query_id), ("key_id", key_ids)):
        _need_integers(name, ids)
        if ids.dim() < 1:
            raise ValueError(f"{name}: a single number given; it must be [..., steps]")
    return Mask(
        allows=lambda i: i.pick(query_id, i.t) == i.pick(key_ids, i.s),
        batch_shape=same_start(tuple(query_id.shape[:-1]), tuple(key_ids.shape[:-1])),
        num_queries=query_id.shape[-1],
        num_keys=key_ids.shape[-1],
    )


def packed(
    query_start: Tensor,
    key_start: Tensor | None = None,
    *,
    num_queries: int,
    num_keys: int | None = None,
    longest: int,
) -> Mask:
    """Allow each of the sentences packed into a row to see itself (or, with `key_start`, its own keys) and no other.

    `query_start` [N + 1] holds the first token of each sentence and one past the last; unused slots at the end repeat
    the last number. Tokens behind the last sentence are padding: they see nothing and nobody sees them. `longest`
    bounds the length of every sentence on either side. Joined by & with `causal()` and `window(r)`, kernels still know
    all of this; distances are those in the row, which within a sentence that attends to itself are its own.
    """
    key_starts = query_start if key_start is None else key_start
    if num_keys is None:
        num_keys = num_queries if key_start is None else None
    for name, start in (("query_start", query_start), ("key_start", key_starts)):
        _need_integers(name, start)
        if start.dim() != 1 or start.shape[0] < 2:
            raise ValueError(f"{name}: shape {list(start.shape)} given; it must be [sentences + 1]")
    if query_start.shape != key_starts.shape:
        raise ValueError(f"key_start: {key_starts.shape[0]} numbers given; query_start has {query_start.shape[0]}")
    if num_keys is None:
        raise ValueError("num_keys: missing; key_start needs it")
    _need_positive("longest", longest)
    last = query_start.shape[0] - 1

    def allows(index: Index) -> Tensor:
        query_at, key_at = _sentence(query_start, index.t), _sentence(key_starts, index.s)
        return (query_at == key_at) & (query_at >= 0) & (query_at < last)

    return Mask(
        allows=allows,
        num_queries=num_queries,
        num_keys=num_keys,
        packing=Packing(query_start, key_starts, longest),
    )


def dense(allowed: Tensor) -> Mask:
    """Make a mask of a boolean tensor [*batch, T, S]; its batch axes are the query's first ones."""
    if not isinstance(allowed, Tensor):
        raise ValueError(f"mask: {type(allowed).__name__} given; it must be a boolean tensor [..., T, S]")
    if allowed.dtype != torch.bool or allowed.dim() < 2:
        what = f"{allowed.dtype} of shape {list(allowed.shape)}"
        raise ValueError(f"mask: {what} given; a tensor must be torch.bool [..., T, S], True = may attend")
    *batch_shape, num_queries, num_keys = allowed.shape
    return Mask(
        allows=lambda i: i.pick(allowed, i.t, i.s),
        batch_shape=tuple(batch_shape),
        num_queries=num_queries if num_queries > 1 else None,  # an axis of 1 stands for any number
        num_keys=num_keys if num_keys > 1 else None,
        reads_query_step=num_queries > 1,
        table=allowed,
    )


def where(predicate: Callable[[Tensor, Tensor], Tensor]) -> Mask:
    """Make a mask of any predicate over query step and key step, say `lambda t, s: (t - s) % 2 == 0`."""
    return Mask(allows=lambda i: predicate(i.t, i.s))


def around(centre: Tensor, radius: int) -> Mask:
    """Allow |s - centre_t| <= radius, weighed by a Gaussian of sigma = radius / 2 (Luong 2015, equation 10)."""
    _need_positive("radius", radius)
    centre = widen(centre)

    def gaussian(index: Index) -> Tensor:
        distance = index.s - index.pick(centre, index.t)
        return torch.exp(-2.0 * (distance / radius) ** 2)  # distance² / (2 sigma²) with sigma = radius / 2

    return Mask(
        allows=lambda i: (i.s - i.pick(centre, i.t)).abs() <= radius,
        batch_shape=tuple(centre.shape[:-1]),
        num_queries=centre.shape[-1],
        factor=gaussian,
        local=Local(centre, radius, full()),
    )


@final
class LocalP(torch.nn.Module):
    """Predictive local attention: p_t = S sigmoid(vᵀ tanh(W q_t)) (Luong 2015, section 3.2, equations 9 and 10).

    local = LocalP(query_width, radius=5)
    attend(query, key, value, score="dot", mask=local(query, length_B) & padding(length_B))
    """

    def __init__(self, query_width: int, *, radius: int, hidden_width: int | None = None) -> None:
        super().__init__()
        hidden_width = query_width if hidden_width is None else hidden_width
        _need_positive("radius", radius)
        _need_positive("hidden_width", hidden_width)
        self.radius = radius
        self.W = torch.nn.Parameter(torch.randn(hidden_width, query_width) / query_width**0.5)
        self.v = torch.nn.Parameter(torch.randn(hidden_width) / hidden_width**0.5)

    def centre(self, query: Tensor, length: Tensor) -> Tensor:
        """Predict the position p_t of each query, [*batch, T]; `length` is S, one per batch entry."""
        _need_integers("length", length)
        if query.shape[-1] != self.W.shape[-1]:
            raise ValueError(f"query: width {query.shape[-1]} given; LocalP was built for {self.W.shape[-1]}")
        with torch.autocast(query.device.type, enabled=False):  # half precision can't tell position 1001 from 1002
            hidden = torch.tanh(widen(query) @ widen(self.W).mT)
            share = torch.sigmoid(hidden @ widen(self.v))
        return length.view(*length.shape, *(1,) * (share.dim() - length.dim())) * share

    def forward(self, query: Tensor, length: Tensor) -> Mask:
        """Return the mask that lets each query see the keys around its predicted position."""
        return around(self.centre(query, length), self.radius)


def _sentence(start: Tensor, step: Tensor) -> Tensor:
    """Tell which sentence a step lies in: -1 before the first, N behind the last."""
    return torch.bucketize(step.contiguous(), start.to(step.dtype), right=True) - 1


def _need_positive(name: str, number: int) -> None:
    if number < 1:
        raise ValueError(f"{name}: {number} given; it must be 1 or more")


def _need_integers(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name}: {type(tensor).__name__} given; it must be a tensor of integers")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name}: a tensor of {tensor.dtype} given; it must hold integers")
