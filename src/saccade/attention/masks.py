"""Scopes: which keys a query may attend to, as predicates over indices (True = may attend).

    masks.causal() & masks.padding(length_B)        both must allow
    masks.window(128) | masks.where(lambda t, s: s == 0)     either may allow
    (masks.causal() & masks.window(2)).dense(5, 5)  a [T, S] tensor, to look at

A mask's own batch axes are the query's *first* axes: `padding(length_B)` fits a query [B, T, D] and one
split into heads [B, H, T, K] alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from saccade.attention.precision import widened


class Index(NamedTuple):
    """Integer tensors that broadcast against each other: one per batch axis, the query step, the key step."""

    batch: tuple[Tensor, ...]
    t: Tensor
    s: Tensor

    def pick(self, table: Tensor, *steps: Tensor) -> Tensor:
        """Entries of a table whose first axes are batch axes and whose last are the given steps."""
        axes = (*self.batch[: table.dim() - len(steps)], *steps)
        return table[tuple(axis * (size > 1) for axis, size in zip(axes, table.shape, strict=True))]


Predicate = Callable[[Index], Tensor]
Band = tuple[int | None, int | None]  # low <= s - t <= high for every allowed pair; None: no bound


@final
@dataclass(frozen=True, kw_only=True)
class Mask:
    """A predicate over indices, with what a kernel may know about it without asking every pair."""

    allows: Predicate
    batch_shape: tuple[int, ...] = ()
    num_queries: int | None = None
    num_keys: int | None = None
    band: Band = (None, None)
    is_band: bool = False  # the band alone is the whole mask
    reads_query_step: bool = True
    factor: Predicate | None = None  # multiplies the weights after they are normalised (local-p's Gaussian)
    length: Tensor | None = None  # [B], where s < length is the whole mask

    @property
    def is_full(self) -> bool:
        """Every key is allowed."""
        return self.is_band and self.band[0] is None and self.band[1] is None

    @property
    def is_causal(self) -> bool:
        """Query t sees keys 0..t and nothing else restricts it."""
        low, high = self.band
        return self.is_band and low is None and high is not None and high == 0

    def __bool__(self) -> bool:
        raise ValueError("mask: a mask is neither true nor false; join masks with & and |, not with 'and' and 'or'")

    def __repr__(self) -> str:
        return f"Mask(batch_shape={self.batch_shape}, band={self.band})"

    def __and__(self, other: Mask) -> Mask:
        _need_mask(other)
        (low, high), (other_low, other_high) = self.band, other.band
        band = (_tightest(max, low, other_low), _tightest(min, high, other_high))
        is_band = self.is_band and other.is_band
        return self._join(other, lambda i: self.allows(i) & other.allows(i), band, is_band, self._factors(other))

    def __or__(self, other: Mask) -> Mask:
        _need_mask(other)
        if self.factor or other.factor:
            raise ValueError("mask: local_p weighs its keys, so it can be joined with & only, not with |")
        if self.is_full or other.is_full:
            return full()
        (low, high), (other_low, other_high) = self.band, other.band
        band = (_loosest(min, low, other_low), _loosest(max, high, other_high))
        return self._join(other, lambda i: self.allows(i) | other.allows(i), band, False, None)

    def dense(
        self,
        num_queries: int,
        num_keys: int,
        *,
        num_axes: int | None = None,
        device: torch.device | None = None,
    ) -> Tensor:
        """The mask as booleans [*batch, T, S], with room for `num_axes` leading axes."""
        allowed = self.allows(self.grid(num_queries, num_keys, num_axes=num_axes, device=device))
        return allowed.expand(*allowed.shape[:-2], num_queries, num_keys)

    def grid(
        self,
        num_queries: int,
        num_keys: int,
        *,
        num_axes: int | None = None,
        device: torch.device | None = None,
    ) -> Index:
        """All pairs of query and key steps as an index."""
        num_axes = len(self.batch_shape) if num_axes is None else num_axes
        batch = tuple(
            torch.arange(size, device=device).view(size, *(1,) * (num_axes - axis + 1))
            for axis, size in enumerate(self.batch_shape)
        )
        t, s = torch.arange(num_queries, device=device), torch.arange(num_keys, device=device)
        return Index(batch, t[:, None], s[None, :])

    def shifted(self, first_query: int, first_key: int) -> Mask:
        """The same mask for slices of the queries and keys that begin at these steps."""
        offset = first_query - first_key
        return replace(
            self,
            allows=lambda i: self.allows(Index(i.batch, i.t + first_query, i.s + first_key)),
            num_queries=None,
            num_keys=None,
            band=(_plus(self.band[0], offset), _plus(self.band[1], offset)),
            length=None,
        )

    def blocked(self, num_blocks: int, stride: int) -> Mask:
        """The same mask for overlapping blocks of queries and keys: a new first axis, block i moved by i * stride."""
        if self.is_band:
            return self  # it reads s - t alone, which is the same in every block

        def allows(index: Index) -> Tensor:
            moved = stride * index.batch[0]
            return self.allows(Index(index.batch[1:], index.t + moved, index.s + moved))

        return replace(self, allows=allows, batch_shape=(num_blocks, *self.batch_shape), length=None)

    def fits(self, leading: tuple[int, ...], num_queries: int, num_keys: int) -> str | None:
        """What doesn't fit a query [*leading, T, D] and its keys, in words; None when all does."""
        own = self.batch_shape
        if len(own) > len(leading) or any(a != 1 and a != b for a, b in zip(own, leading, strict=False)):
            return f"its batch axes {list(own)} are not the query's first axes {list(leading)}"
        if self.num_queries is not None and self.num_queries != num_queries:
            return f"it was made for {self.num_queries} query steps, not {num_queries}"
        if self.num_keys is not None and self.num_keys != num_keys:
            return f"it was made for {self.num_keys} keys, not {num_keys}"
        return None

    def grouped(self, repeats: int) -> Mask:
        """The same mask for heads in groups: its second axis [H] becomes [H / repeats, repeats]."""
        if len(self.batch_shape) < 2:
            return self
        batch, heads, *rest = self.batch_shape

        def ungrouped(index: Index) -> Index:
            b, group, member, *others = index.batch
            return Index((b, group * repeats + member, *others), index.t, index.s)

        factor = self.factor
        return replace(
            self,
            allows=lambda i: self.allows(ungrouped(i)),
            batch_shape=(batch, heads // repeats, repeats, *rest) if heads > 1 else (batch, 1, 1, *rest),
            factor=None if factor is None else lambda i: factor(ungrouped(i)),
        )

    def _factors(self, other: Mask) -> Predicate | None:
        mine, theirs = self.factor, other.factor
        if mine is None or theirs is None:
            return mine or theirs
        return lambda index: mine(index) * theirs(index)

    def _join(self, other: Mask, allows: Predicate, band: Band, is_band: bool, factor: Predicate | None) -> Mask:
        return Mask(
            allows=allows,
            batch_shape=_same_start(self.batch_shape, other.batch_shape),
            num_queries=_same("query steps", self.num_queries, other.num_queries),
            num_keys=_same("keys", self.num_keys, other.num_keys),
            band=band,
            is_band=is_band,
            reads_query_step=self.reads_query_step or other.reads_query_step,
            factor=factor,
        )


def full() -> Mask:
    """Global attention: every key is allowed."""
    return Mask(allows=lambda i: torch.ones_like(i.s, dtype=torch.bool), is_band=True, reads_query_step=False)


def causal(offset: int = 0) -> Mask:
    """s <= t + offset: no query sees the future. With a cache of n earlier keys, `offset=n`."""
    return Mask(allows=lambda i: i.s <= i.t + offset, band=(None, offset), is_band=True)


def window(radius: int, offset: int = 0) -> Mask:
    """|s - t| <= radius: restricted self-attention (Vaswani 2017, section 4), in O(radius * n * d).

    The window is 2 * radius + 1 keys wide, centred on the query's own position (plus `offset`).
    """
    if not isinstance(radius, int | torch.SymInt) or radius < 0:
        raise ValueError(f"radius: {radius} given; it must be a whole number, 0 or more")
    band = (offset - radius, offset + radius)
    return Mask(allows=lambda i: (i.s - i.t - offset).abs() <= radius, band=band, is_band=True)


def local_m(radius: int, step: int = 0) -> Mask:
    """Monotonic local attention: a window around the aligned position p_t = t (Luong 2015, section 3.2).

    A decoder that asks one query at a time names its position with `step`.
    """
    return window(radius, offset=step)


def padding(length: Tensor) -> Mask:
    """s < length: the keys beyond each sequence's own length are padding. `length` is [B] (or [B, H], ...)."""
    _need_integers("length", length)
    return Mask(
        allows=lambda i: i.s < i.pick(length),
        batch_shape=tuple(length.shape),
        reads_query_step=False,
        length=length if length.dim() == 1 else None,
    )


def document(query_id: Tensor, key_id: Tensor | None = None) -> Mask:
    """Equal ids: sequences packed into one row see only themselves. [B, T] and [B, S], or [T] and [S]."""
    key_ids = query_id if key_id is None else key_id
    for name, ids in (("query_id", query_id), ("key_id", key_ids)):
        _need_integers(name, ids)
        if ids.dim() < 1:
            raise ValueError(f"{name}: a single number given; it must be [..., steps]")
    return Mask(
        allows=lambda i: i.pick(query_id, i.t) == i.pick(key_ids, i.s),
        batch_shape=_same_start(tuple(query_id.shape[:-1]), tuple(key_ids.shape[:-1])),
        num_queries=query_id.shape[-1],
        num_keys=key_ids.shape[-1],
    )


def dense(allowed: Tensor) -> Mask:
    """A boolean tensor [*batch, T, S] as a mask; its batch axes are the query's first ones."""
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
    )


def where(predicate: Callable[[Tensor, Tensor], Tensor]) -> Mask:
    """Any predicate over the query step and the key step, say `lambda t, s: (t - s) % 2 == 0`."""
    return Mask(allows=lambda i: predicate(i.t, i.s))


def around(centre: Tensor, radius: int) -> Mask:
    """|s - centre_t| <= radius, weighed by a Gaussian of sigma = radius / 2 (Luong 2015, equation 10)."""
    _need_positive("radius", radius)
    centre = widened(centre)

    def gaussian(index: Index) -> Tensor:
        distance = index.s - index.pick(centre, index.t)
        return torch.exp(-2.0 * (distance / radius) ** 2)  # distance² / (2 sigma²) with sigma = radius / 2

    return Mask(
        allows=lambda i: (i.s - i.pick(centre, i.t)).abs() <= radius,
        batch_shape=tuple(centre.shape[:-1]),
        num_queries=centre.shape[-1],
        factor=gaussian,
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
        """The predicted position p_t of each query, [*batch, T]; `length` is S, one per batch entry."""
        _need_integers("length", length)
        if query.shape[-1] != self.W.shape[-1]:
            raise ValueError(f"query: width {query.shape[-1]} given; LocalP was built for {self.W.shape[-1]}")
        with torch.autocast(query.device.type, enabled=False):  # half precision can't tell position 1001 from 1002
            hidden = torch.tanh(widened(query) @ widened(self.W).mT)
            share = torch.sigmoid(hidden @ widened(self.v))
        return length.view(*length.shape, *(1,) * (share.dim() - length.dim())) * share

    def forward(self, query: Tensor, length: Tensor) -> Mask:
        """The mask that lets each query see the keys around its predicted position."""
        return around(self.centre(query, length), self.radius)


def _need_mask(other: object) -> None:
    if not isinstance(other, Mask):
        raise ValueError(f"mask: {type(other).__name__} joined with a mask; wrap a boolean tensor in masks.dense(...)")


def _need_positive(name: str, number: int) -> None:
    if number < 1:
        raise ValueError(f"{name}: {number} given; it must be 1 or more")


def _need_integers(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name}: {type(tensor).__name__} given; it must be a tensor of integers")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name}: a tensor of {tensor.dtype} given; it must hold integers")


def _plus(bound: int | None, offset: int) -> int | None:
    return None if bound is None else bound + offset


def _tightest(choose: Callable[[int, int], int], mine: int | None, theirs: int | None) -> int | None:
    bounds = [bound for bound in (mine, theirs) if bound is not None]
    return choose(*bounds) if len(bounds) == 2 else bounds[0] if bounds else None


def _loosest(choose: Callable[[int, int], int], mine: int | None, theirs: int | None) -> int | None:
    return None if mine is None or theirs is None else choose(mine, theirs)


def _same_start(mine: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
    longer, shorter = (mine, theirs) if len(mine) >= len(theirs) else (theirs, mine)
    both = list(zip(longer, shorter, strict=False))
    if any(a != b and a != 1 and b != 1 for a, b in both):
        raise ValueError(f"mask: batch axes {list(mine)} and {list(theirs)} of joined masks don't start alike")
    return (*(b if a == 1 else a for a, b in both), *longer[len(shorter) :])


def _same(what: str, mine: int | None, theirs: int | None) -> int | None:
    if mine is not None and theirs is not None and mine != theirs:
        raise ValueError(f"mask: joined masks were made for {mine} and {theirs} {what}")
    return theirs if mine is None else mine
