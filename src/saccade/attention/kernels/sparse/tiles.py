# mypy: disable-error-code="no-untyped-def"
"""Parts that the kernels of streamed attention share: a call's arguments, and the way from scores to weights.

A row is known by two numbers: `top`, its best score in the normaliser's unit, and `edge`, what stands between that and
the weights: with y = score - top - edge, softmax weighs 2 ** y (of scores in bits), sparsemax [y]+ and entmax15 [y]+²
(of half scores). A row without keys has an infinite edge, so that its weights are 0; one that saw NaN or infinity, NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.packed.launches import TO_BITS, DropRule, padded_width, rows
from saccade.attention.kernels.packed.tiles import fetch, in_band, in_reach, is_kept, put
from saccade.attention.kernels.sparse.op import SparseInputs

UNITS = {"softmax": TO_BITS, "sparsemax": 1.0, "entmax15": 0.5}


class Tiles(NamedTuple):
    """Tuning of a launch: queries and keys of a tile, warps of a program, blocks loaded ahead."""

    queries: int
    keys: int
    warps: int
    stages: int = 2

    def options(self, rules: SparseRules, num_keys: int) -> dict[str, Any]:
        """Return the options of a launch whose programs have these tiles."""
        rules = rules._replace(block_t=self.queries, block_s=self.keys, is_whole=num_keys <= self.keys)
        return {"RULES": rules, "num_warps": self.warps, "num_stages": self.stages}

    def fit(self, num_queries: int, num_keys: int) -> Tiles:
        """Return tiles no larger than there is work for; a product wants 16 at least."""
        queries, keys = (max(16, triton.next_power_of_2(n)) for n in (num_queries, num_keys))
        return self._replace(queries=min(self.queries, queries), keys=min(self.keys, keys))


class SparseTensor(NamedTuple):
    """A tensor [B, H, T, K] as a kernel reads it, the numbers of one step side by side."""

    data: Tensor
    batch: int
    head: int
    step: int
    width: tl.constexpr
    padded: tl.constexpr  # to a power of two; a product wants 16 at least

    @staticmethod
    def of(tensor: Tensor) -> SparseTensor:
        """Describe a tensor; it is copied only where the numbers of a step lie apart."""
        tensor = rows(tensor)
        (batch, head, step, _), width = tensor.stride(), tensor.shape[3]
        return SparseTensor(tensor, batch, head, step, tl.constexpr(width), tl.constexpr(padded_width(width)))


class Pairs(NamedTuple):
    """The keys that each query may see: `Scope`, and local_p's centres [B, H, T]."""

    num_heads: int
    num_queries: int
    num_keys: int
    low: int
    high: int
    mask: Tensor | None
    mask_batch: int  # its strides: 0 where it doesn't differ. (Triton loses a stride of 1 in a tuple inside a tuple.)
    mask_head: int
    mask_step: int
    mask_key: int
    centre: Tensor | None
    radius: int


class SparseRules(NamedTuple):
    """Compile-time constants of a kernel."""

    kind: str
    has_low: bool
    has_high: bool
    masked: str  # no, by key, by pair
    is_local: bool
    drops: bool
    repeats: int  # query heads of a key/value head
    block_t: int = 0
    block_s: int = 0
    is_whole: bool = False  # a block holds all keys


def options_of(given: SparseInputs) -> tuple[dict[str, object], SparseRules]:
    """Return what every kernel is told of a call beside query, key and value, and what it is compiled for."""
    low, high, mask, centre = given.low, given.high, given.mask, given.centre_BHT
    strides = [0] * 4 if mask is None else [n * (m > 1) for n, m in zip(mask.stride(), mask.shape, strict=True)]
    by_batch, by_head, by_step, by_key = strides
    masked = "no" if mask is None else "by pair" if mask.shape[2] > 1 else "by key"
    data = None if mask is None else mask.view(torch.uint8)
    (num_heads, num_queries), (num_groups, num_keys) = given.query_BHTK.shape[1:3], given.key_BGSK.shape[1:3]
    sizes = (num_heads, num_queries, num_keys)
    has, repeats = (low is not None, high is not None), num_heads // num_groups
    rules = SparseRules(given.kind, *has, masked, centre is not None, given.dropout > 0, repeats)
    arguments = {
        "scope": Pairs(*sizes, low or 0, high or 0, data, by_batch, by_head, by_step, by_key, centre, given.radius),
        "dropping": DropRule.of(given.dropout, given.seed),
        "unit": given.scale * UNITS[given.kind],
    }
    return arguments, rules


@triton.jit
def place(x, batch, head):
    """Return where a head's rows begin."""
    return x.data + tl.cast(batch, tl.int64) * x.batch + tl.cast(head, tl.int64) * x.head


@triton.jit
def read(x, at, first, end, BLOCK: tl.constexpr):
    """Read steps first.. of the head at a place, zeros from `end` on."""
    return fetch(at, first, end, x.step, x.width, x.padded, BLOCK)


@triton.jit
def write(x, at, first, end, block, BLOCK: tl.constexpr):
    """Write steps first.. of the head at a place, up to `end`."""
    put(at, first, end, x.step, block, x.width, x.padded, BLOCK)


@triton.jit
def mask_of(scope, batch, head, RULES: tl.constexpr):
    """Return where a head's mask begins, if there is one."""
    mask = head
    if RULES.masked != "no":
        mask = scope.mask + tl.cast(batch, tl.int64) * scope.mask_batch + tl.cast(head, tl.int64) * scope.mask_head
    return mask


@triton.jit
def centres_of(scope, row, t, RULES: tl.constexpr):
    """Read the queries' centres, [T]; anything if the mask has none."""
    centres = t
    if RULES.is_local:
        centres = tl.load(scope.centre + row.to(tl.int64) * scope.num_queries + t, t < scope.num_queries, 0.0)
    return centres


@triton.jit
def mask_scores(score, mask, t, s, centres, scope, unit, RULES: tl.constexpr):
    """Convert scores to the normaliser's unit, -inf where a query may not attend; [T, S] or [S, T], as t and s are."""
    inside = in_band(t, s, scope.num_keys, scope.low, scope.high, RULES.has_low, RULES.has_high)
    if RULES.masked == "by key":
        inside = inside & (tl.load(mask + s * scope.mask_key, s < scope.num_keys, 0) != 0)
    if RULES.masked == "by pair":
        there = (t < scope.num_queries) & (s < scope.num_keys)
        inside = inside & (tl.load(mask + t.to(tl.int64) * scope.mask_step + s * scope.mask_key, there, 0) != 0)
    if RULES.is_local:
        inside = inside & ~(tl.abs(s - centres) > scope.radius)  # so that a centre of NaN reaches the weights
    return tl.where(inside, score * unit, -float("inf"))


@triton.jit
def weights(score, top, edge, RULES: tl.constexpr):
    """Compute the weights a, and s of their derivative, da_i = s_i (de_i - sum_j s_j de_j / sum_j s_j)."""
    y = score - top - edge
    if RULES.kind == "softmax":
        weight = tl.exp2(y)
        bend = weight
    else:
        bend = tl.where(y <= 0, 0.0, y)  # not a maximum, which would lose NaN
        weight = bend
        if RULES.kind == "sparsemax":
            bend = tl.where(bend > 0, 1.0, bend)
        else:
            weight = bend * bend
    forbidden = score == -float("inf")  # also where the row is NaN
    return tl.where(forbidden, 0.0, weight), tl.where(forbidden, 0.0, bend)


@triton.jit
def weight_factor(row, t, s, centres, scope, dropping, RULES: tl.constexpr):
    """Compute the factor of a normalised weight: local_p's Gaussian, and dropout's 0 or 1 / (1 - share)."""
    share = 1.0
    if RULES.is_local:
        distance = (s - centres) / scope.radius
        share = tl.exp2(distance * distance * -2.8853900817779268)  # exp(-2 d²) = 2 ** (-2 d² / ln 2)
    if RULES.drops:
        kept = is_kept(tl.load(dropping.seed), row * scope.num_queries + t, s, dropping.threshold)
        share = tl.where(kept, share * dropping.factor, 0.0)
    return share


@triton.jit
def neighbourhood(centres, scope):
    """Return the first and the last key that any of these centres may reach; -1 for the last if there is none."""
    some = tl.where(centres == centres, centres, 0.0)
    near = tl.minimum(tl.maximum(tl.min(some, 0) - scope.radius, 0.0), 1.0 * scope.num_keys)
    far = tl.minimum(tl.maximum(tl.max(some, 0) + scope.radius, -1.0), 1.0 * scope.num_keys)
    return near.to(tl.int32), far.to(tl.int32)


@triton.jit
def reach(first, scope, centres, RULES: tl.constexpr):
    """Return start and stop of the keys that any of the queries first.. may see: whole blocks."""
    end, block = first + RULES.block_t, RULES.block_s
    start, stop = in_reach(first, end, 0, scope.num_keys, scope.low, scope.high, block, RULES.has_low, RULES.has_high)
    if RULES.is_local:
        near, far = neighbourhood(centres, scope)
        start = tl.maximum(start, near // block * block)
        stop = tl.minimum(stop, far + 1)
    return start, stop


@triton.jit
def find_tile(key, value, scope, RULES: tl.constexpr):
    """Find a program's row (a head of an entry), entry, head, first query, keys, values, mask, queries and centres."""
    num_tiles = tl.cdiv(scope.num_queries, RULES.block_t)
    row, first = tl.program_id(0) // num_tiles, tl.program_id(0) % num_tiles * RULES.block_t
    batch, head = row // scope.num_heads, row % scope.num_heads
    keys, values = place(key, batch, head // RULES.repeats), place(value, batch, head // RULES.repeats)
    mask = mask_of(scope, batch, head, RULES)
    t = first + tl.arange(0, RULES.block_t)
    centres = centres_of(scope, row, t, RULES)
    return row, batch, head, first, keys, values, mask, t, centres
