# mypy: disable-error-code="no-untyped-def"
"""What the kernels of streamed attention share: what a call asks, as they read it, and from scores to weights.

A row is known by two numbers: `top`, its best score in the normaliser's unit, and `edge`, what stands between that and
the weights: with y = score - top - edge, softmax weighs 2 ** y (of scores in bits), sparsemax [y]+ and entmax15 [y]+²
(of half scores). A row without keys has an infinite edge, so that its weights are 0; one that saw NaN or infinity, NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.packed.tiles import TO_BITS, Dropping, in_band, in_reach, is_kept, rows, widths
from saccade.attention.kernels.sparse.op import SparseInputs

UNITS = {"softmax": TO_BITS, "sparsemax": 1.0, "entmax15": 0.5}


class Tiles(NamedTuple):
    """How the work is cut: queries and keys of a tile, warps of a program, blocks loaded ahead."""

    queries: int
    keys: int
    warps: int
    stages: int = 2

    def options(self) -> dict[str, int]:
        """What a launch is told of it."""
        sizes = {"BLOCK_T": self.queries, "BLOCK_S": self.keys}
        return {**sizes, "num_warps": self.warps, "num_stages": self.stages}

    def fitted(self, num_queries: int, num_keys: int) -> Tiles:
        """No larger than there is work for; a product wants 16 at least."""
        queries, keys = (max(16, triton.next_power_of_2(n)) for n in (num_queries, num_keys))
        return self._replace(queries=min(self.queries, queries), keys=min(self.keys, keys))


class SparseTensor(NamedTuple):
    """A tensor [B, H, T, K] as a kernel reads it, the numbers of one step side by side."""

    data: Tensor
    batch: int
    head: int
    step: int

    @staticmethod
    def of(tensor: Tensor) -> SparseTensor:
        """Copied only where a step's numbers lie apart."""
        tensor = rows(tensor)
        return SparseTensor(tensor, *tensor.stride()[:3])


class Pairs(NamedTuple):
    """Which query may see which key: `Scope`, and local_p's centres [B, H, T]."""

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
    """What a kernel is compiled for."""

    kind: str
    has_low: bool
    has_high: bool
    masked: str  # no, by key, by pair
    is_local: bool
    drops: bool


def options_of(given: SparseInputs) -> dict[str, object]:
    """Return what every kernel is told of a call beside query, key and value."""
    low, high, mask, centre = given.low, given.high, given.mask, given.centre_BHT
    strides = [0] * 4 if mask is None else [n * (m > 1) for n, m in zip(mask.stride(), mask.shape, strict=True)]
    by_batch, by_head, by_step, by_key = strides
    masked = "no" if mask is None else "by pair" if mask.shape[2] > 1 else "by key"
    data = None if mask is None else mask.view(torch.uint8)
    (num_heads, num_queries), (num_groups, num_keys) = given.query_BHTK.shape[1:3], given.key_BGSK.shape[1:3]
    sizes = (num_heads, num_queries, num_keys)
    has = (low is not None, high is not None)
    return {
        "scope": Pairs(*sizes, low or 0, high or 0, data, by_batch, by_head, by_step, by_key, centre, given.radius),
        "dropping": Dropping.of(given.dropout, given.seed),
        "unit": given.scale * UNITS[given.kind],
        "REPEATS": num_heads // num_groups,
        "RULES": SparseRules(given.kind, *has, masked, centre is not None, given.dropout > 0),
        **widths(given.key_BGSK, given.value_BGSW),
    }


@triton.jit
def place(x, batch, head):
    """Where a head's rows begin."""
    return x.data + tl.cast(batch, tl.int64) * x.batch + tl.cast(head, tl.int64) * x.head


@triton.jit
def mask_of(scope, batch, head, RULES: tl.constexpr):
    """Where a head's mask begins, if there is one."""
    mask = head
    if RULES.masked != "no":
        mask = scope.mask + tl.cast(batch, tl.int64) * scope.mask_batch + tl.cast(head, tl.int64) * scope.mask_head
    return mask


@triton.jit
def centres_of(scope, row, t, RULES: tl.constexpr):
    """Where queries look, [T]; anything where they look everywhere."""
    centres = t
    if RULES.is_local:
        centres = tl.load(scope.centre + row.to(tl.int64) * scope.num_queries + t, t < scope.num_queries, 0.0)
    return centres


@triton.jit
def raised(score, mask, t, s, centres, scope, unit, RULES: tl.constexpr):
    """Scores in the normaliser's unit, -inf where a query may not look; [T, S] or [S, T], as t and s are."""
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
    """The weights a, and s of their derivative, da_i = s_i (de_i - sum_j s_j de_j / sum_j s_j)."""
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
def kept_share(row, t, s, centres, scope, dropping, RULES: tl.constexpr):
    """What multiplies a weight once it is normalised: local_p's Gaussian, and dropout's 0 or 1 / (1 - share)."""
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
    """The first and the last key that any of these centres may reach; -1 for the last where there is none."""
    some = tl.where(centres == centres, centres, 0.0)
    near = tl.minimum(tl.maximum(tl.min(some, 0) - scope.radius, 0.0), 1.0 * scope.num_keys)
    far = tl.minimum(tl.maximum(tl.max(some, 0) + scope.radius, -1.0), 1.0 * scope.num_keys)
    return near.to(tl.int32), far.to(tl.int32)


@triton.jit
def reach(first, scope, centres, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, RULES: tl.constexpr):
    """The keys that any of the queries first.. may see: whole blocks, from start to stop."""
    start, stop = in_reach(
        first, first + BLOCK_T, 0, scope.num_keys, scope.low, scope.high, BLOCK_S, RULES.has_low, RULES.has_high
    )
    if RULES.is_local:
        near, far = neighbourhood(centres, scope)
        start = tl.maximum(start, near // BLOCK_S * BLOCK_S)
        stop = tl.minimum(stop, far + 1)
    return start, stop
