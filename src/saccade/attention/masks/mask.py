"""The mask itself: a predicate over indices, its algebra, and what a kernel may know about it (builders: `masks`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor


class Index(NamedTuple):
    """Integer tensors that broadcast against each other: one per batch axis, the query step, the key step."""

    batch: tuple[Tensor, ...]
    t: Tensor
    s: Tensor

    def pick(self, table: Tensor, *steps: Tensor) -> Tensor:
        """Pick entries of a table whose first axes are batch axes and whose last are the given steps."""
        axes = (*self.batch[: table.dim() - len(steps)], *steps)
        return table[tuple(axis * (size > 1) for axis, size in zip(axes, table.shape, strict=True))]


Predicate = Callable[[Index], Tensor]
Band = tuple[int | None, int | None]  # low <= s - t <= high for every allowed pair; None: no bound


class Packing(NamedTuple):
    """Sentences one behind the other in a single row: the first token of each, and one past the last."""

    query_start: Tensor  # [N + 1], on the device; unused slots at the end repeat the last number
    key_start: Tensor
    longest: int  # no sentence has more queries or keys than this


class Local(NamedTuple):
    """Keys near a centre, weighed by a Gaussian (local_p): |s - centre_t| <= radius, of sigma radius / 2."""

    centre: Tensor  # [*batch, T]
    radius: int
    others: Mask  # what else a key must pass

    def group_heads(self, repeats: int) -> Local:
        """Split the heads' axis into groups."""
        batch_shape, others = self.centre.shape[:-1], self.others.group_heads(repeats)
        if len(batch_shape) < 2:
            return Local(self.centre, self.radius, others)
        members = (-1, repeats) if batch_shape[1] > 1 else (1, 1)
        return Local(self.centre.unflatten(1, members), self.radius, others)


@final
@dataclass(frozen=True, kw_only=True)
class Mask:
    """A predicate over indices, with what a kernel can know about it without testing every pair."""

    allows: Predicate
    batch_shape: tuple[int, ...] = ()
    num_queries: int | None = None
    num_keys: int | None = None
    band: Band = (None, None)
    is_band: bool = False  # the band alone is the whole mask
    packing: Packing | None = None  # it and the band together are the whole mask
    reads_query_step: bool = True
    table: Tensor | None = None  # the mask itself as booleans [*batch, T, S], where that is what it was made of
    factor: Predicate | None = None  # multiplies the weights after they are normalised (local-p's Gaussian)
    local: Local | None = None  # where it is the whole mask, and its Gaussian the factor
    length: Tensor | None = None  # [B], where s < length is the whole mask

    @property
    def is_full(self) -> bool:
        """True if every key is allowed."""
        return self.is_band and self.band[0] is None and self.band[1] is None

    @property
    def is_causal(self) -> bool:
        """True if query t sees keys 0..t and nothing else restricts it."""
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
        joined = self._join(other, lambda i: self.allows(i) & other.allows(i), band, self._factors(other))
        packing = self.packing if other.is_band else other.packing if self.is_band else None
        return replace(joined, is_band=self.is_band and other.is_band, packing=packing, local=self._locals(other))

    def __or__(self, other: Mask) -> Mask:
        _need_mask(other)
        if self.factor or other.factor:
            raise ValueError("mask: local_p weighs its keys, so it can be joined with & only, not with |")
        if self.is_full or other.is_full:
            return self if self.is_full else other
        (low, high), (other_low, other_high) = self.band, other.band
        band = (_loosest(min, low, other_low), _loosest(max, high, other_high))
        return self._join(other, lambda i: self.allows(i) | other.allows(i), band, None)

    def dense(
        self,
        num_queries: int,
        num_keys: int,
        *,
        num_axes: int | None = None,
        device: torch.device | None = None,
    ) -> Tensor:
        """Return the mask as booleans [*batch, T, S], with room for `num_axes` leading axes."""
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
        """Return all pairs of query and key steps as an index."""
        num_axes = len(self.batch_shape) if num_axes is None else num_axes
        batch = tuple(
            torch.arange(size, device=device).view(size, *(1,) * (num_axes - axis + 1))
            for axis, size in enumerate(self.batch_shape)
        )
        t, s = torch.arange(num_queries, device=device), torch.arange(num_keys, device=device)
        return Index(batch, t[:, None], s[None, :])

    def shift(self, first_query: int, first_key: int) -> Mask:
        """Return the same mask for slices of the queries and keys that begin at these steps."""
        offset = first_query - first_key
        return replace(
            self,
            table=None,
            allows=lambda i: self.allows(Index(i.batch, i.t + first_query, i.s + first_key)),
            num_queries=None,
            num_keys=None,
            packing=None,
            length=None,
            local=None,
            band=(_plus(self.band[0], offset), _plus(self.band[1], offset)),
        )

    def split_blocks(self, num_blocks: int, stride: int) -> Mask:
        """Return the same mask for overlapping blocks: a new first axis, block i moved by i * stride."""
        if self.is_band:
            return self  # it reads s - t alone, which is the same in every block

        def allows(index: Index) -> Tensor:
            moved = stride * index.batch[0]
            return self.allows(Index(index.batch[1:], index.t + moved, index.s + moved))

        shape = (num_blocks, *self.batch_shape)
        return replace(self, allows=allows, batch_shape=shape, packing=None, length=None, table=None, local=None)

    def fits(self, leading: tuple[int, ...], num_queries: int, num_keys: int) -> str | None:
        """Say what doesn't fit a query [*leading, T, D] and its keys; None when everything fits."""
        own = self.batch_shape
        if len(own) > len(leading) or any(a != 1 and a != b for a, b in zip(own, leading, strict=False)):
            return f"its batch axes {list(own)} are not the query's first axes {list(leading)}"
        if self.num_queries is not None and self.num_queries != num_queries:
            return f"it was made for {self.num_queries} query steps, not {num_queries}"
        if self.num_keys is not None and self.num_keys != num_keys:
            return f"it was made for {self.num_keys} keys, not {num_keys}"
        return None

    def group_heads(self, repeats: int) -> Mask:
        """Return the same mask for heads in groups: its second axis [H] becomes [H / repeats, repeats]."""
        if len(self.batch_shape) < 2:
            return self
        batch, heads, *rest = self.batch_shape

        def ungrouped(index: Index) -> Index:
            b, group, member, *others = index.batch
            return Index((b, group * repeats + member, *others), index.t, index.s)

        factor = self.factor
        return replace(
            self,
            table=None,
            allows=lambda i: self.allows(ungrouped(i)),
            batch_shape=(batch, heads // repeats, repeats, *rest) if heads > 1 else (batch, 1, 1, *rest),
            factor=None if factor is None else lambda i: factor(ungrouped(i)),
            local=None if self.local is None else self.local.group_heads(repeats),
        )

    def _factors(self, other: Mask) -> Predicate | None:
        mine, theirs = self.factor, other.factor
        if mine is None or theirs is None:
            return mine or theirs
        return lambda index: mine(index) * theirs(index)

    def _locals(self, other: Mask) -> Local | None:
        """Keep the Gaussian of whichever mask has one; None if both have."""
        mine, theirs = self.local, other.local
        if self.factor is not None and other.factor is not None:
            return None
        if mine is not None:
            return mine._replace(others=mine.others & other)
        return None if theirs is None else theirs._replace(others=self & theirs.others)

    def _join(self, other: Mask, allows: Predicate, band: Band, factor: Predicate | None) -> Mask:
        return Mask(
            allows=allows,
            batch_shape=same_start(self.batch_shape, other.batch_shape),
            num_queries=_same("query steps", self.num_queries, other.num_queries),
            num_keys=_same("keys", self.num_keys, other.num_keys),
            band=band,
            reads_query_step=self.reads_query_step or other.reads_query_step,
            factor=factor,
        )


def _need_mask(other: object) -> None:
    if not isinstance(other, Mask):
        raise ValueError(f"mask: {type(other).__name__} joined with a mask; wrap a boolean tensor in masks.dense(...)")


def _plus(bound: int | None, offset: int) -> int | None:
    return None if bound is None else bound + offset


def _tightest(choose: Callable[[int, int], int], mine: int | None, theirs: int | None) -> int | None:
    bounds = [bound for bound in (mine, theirs) if bound is not None]
    return choose(*bounds) if len(bounds) == 2 else bounds[0] if bounds else None


def _loosest(choose: Callable[[int, int], int], mine: int | None, theirs: int | None) -> int | None:
    return None if mine is None or theirs is None else choose(mine, theirs)


def same_start(mine: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
    """Join the batch axes of two masks: those of the longer, wherever the other agrees or has 1."""
    longer, shorter = (mine, theirs) if len(mine) >= len(theirs) else (theirs, mine)
    both = list(zip(longer, shorter, strict=False))
    if any(a != b and a != 1 and b != 1 for a, b in both):
        raise ValueError(f"mask: batch axes {list(mine)} and {list(theirs)} of joined masks don't start alike")
    return (*(b if a == 1 else a for a, b in both), *longer[len(shorter) :])


def _same(what: str, mine: int | None, theirs: int | None) -> int | None:
    if mine is not None and theirs is not None and mine != theirs:
        raise ValueError(f"mask: joined masks were made for {mine} and {theirs} {what}")
    return theirs if mine is None else mine
