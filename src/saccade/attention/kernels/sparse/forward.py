# mypy: disable-error-code="no-untyped-def"
"""Attention with any normaliser, in Triton: a program has a tile of queries, and passes over the keys it may see.

The first pass finds each row's best score. The sparse normalisers then look for their threshold: the excess of a row's
weights over 1 is a convex function of it that falls, so Newton's steps from below (best - 1) don't pass the root, and
the product of value and slope falls by four or more with each: two dozen steps are the most that float32 can ask for,
half a dozen the usual. The last step is one so small (CLOSE) that the next would be lost in rounding. Nothing is sorted
and no row is held; only keys that fit one tile are scored once, and stay in registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.packed.forward import above
from saccade.attention.kernels.packed.tiles import product
from saccade.attention.kernels.sparse.op import SparseInputs, rows_like
from saccade.attention.kernels.sparse.tiles import (
    SparseTensor,
    Tiles,
    find_tile,
    mask_scores,
    options_of,
    place,
    reach,
    read,
    weight_factor,
    weights,
    write,
)

MOST_STEPS = 40


def tiles_for(num_keys: int, width: int, dtype: torch.dtype) -> Tiles:
    """Choose tiles whose scores, queries and sums fit the registers of a program."""
    if dtype == torch.float32:
        return Tiles(32, 64 if width <= 64 else 32, warps=8)
    if num_keys <= 128 and width <= 128:
        return Tiles(64, 128, warps=8)
    return Tiles(64, 64 if width <= 128 else 32, warps=4 if width <= 64 else 8)


def forward(given: SparseInputs) -> tuple[Tensor, Tensor]:
    """Compute the output [B, H, T, W], in memory [B, T, H, W] for the next projection, and each row's top and edge."""
    query_BHTK, key_BGSK, value_BGSW, *_ = given
    (batch, heads, num_queries, width), num_keys = query_BHTK.shape, key_BGSK.shape[2]
    output = rows_like(query_BHTK, value_BGSW.shape[-1])
    peak = query_BHTK.new_empty(batch, heads, num_queries, 2, dtype=torch.float32)
    widest = max(width, value_BGSW.shape[-1])
    arguments, rules = options_of(given)
    tiles = tiles_for(num_keys, widest, query_BHTK.dtype).fit(num_queries, num_keys)
    forward_kernel[(batch * heads * triton.cdiv(num_queries, tiles.queries),)](
        *(SparseTensor.of(x) for x in (query_BHTK, key_BGSK, value_BGSW, output)),
        peak,
        **arguments,
        **tiles.options(rules, num_keys),
        CLOSE=1e-6 if query_BHTK.dtype == torch.float32 else 1e-4,
        MOST=MOST_STEPS,
    )
    return output, peak


@triton.jit
def excess(score, top, edge, RULES: tl.constexpr):
    """Sum what stands above the edge, and its squares (sparsemax: count it)."""
    y = score - top[:, None] - edge[:, None]
    over = tl.maximum(y, 0.0)
    second = tl.where(y > 0, 1.0, 0.0) if RULES.kind == "sparsemax" else over * over
    return tl.sum(over, 1), tl.sum(second, 1)


@triton.jit
def newton(first, second, RULES: tl.constexpr):
    """Compute how far the edge must rise: entmax15 takes the excess of its sum's root, which is nearly a line."""
    if RULES.kind == "sparsemax":
        step = (first - 1) / tl.where(first > 0, second, 1.0)
    else:
        root = tl.sqrt(second)
        step = (root - 1) * root / tl.where(first > 0, first, 1.0)
    return tl.where(first > 0, step, 0.0)


@triton.jit
def forward_kernel(
    query, key, value, output, peak, scope, dropping, unit, RULES: tl.constexpr, CLOSE: tl.constexpr, MOST: tl.constexpr
):
    """Compute a tile of queries: its tops, its edges, its sums of values."""
    BLOCK_T: tl.constexpr = RULES.block_t
    BLOCK_S: tl.constexpr = RULES.block_s
    row, batch, head, first, keys, values, mask, t, centres = find_tile(key, value, scope, RULES)
    t_T1, column, c_T1 = t[:, None], tl.arange(0, BLOCK_S)[None, :], centres[:, None]
    start, stop = reach(first, scope, centres, RULES)
    q = read(query, place(query, batch, head), first, scope.num_queries, BLOCK_T)
    top = tl.full((BLOCK_T,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_T,), tl.float32)
    score = tl.full((BLOCK_T, BLOCK_S), -float("inf"), tl.float32)
    for block in range(start, stop, BLOCK_S):
        k = read(key, keys, block, scope.num_keys, BLOCK_S)
        score = mask_scores(product(q, tl.trans(k)), mask, t_T1, block + column, c_T1, scope, unit, RULES)
        if RULES.kind == "softmax":
            higher = tl.maximum(top, tl.max(score, 1))
            powers = tl.exp2(score - above(higher)[:, None])
            total = total * tl.exp2(top - above(higher)) + tl.sum(powers, 1)
            top = higher
        else:
            top = tl.maximum(top, tl.max(tl.where(score == score, score, float("inf")), 1))
    is_empty = top == -float("inf")
    is_broken = top == float("inf")
    top = above(top)
    if RULES.kind == "softmax":
        edge = tl.log2(tl.where(is_empty, 1.0, total))
    else:
        edge = tl.full((BLOCK_T,), -1.0, tl.float32)
        largest, steps = 1.0, 0
        while (largest > CLOSE) & (steps < MOST):
            if RULES.is_whole:
                summed, second = excess(score, top, edge, RULES)
            else:
                summed, second = tl.zeros((BLOCK_T,), tl.float32), tl.zeros((BLOCK_T,), tl.float32)
                for block in range(start, stop, BLOCK_S):
                    k = read(key, keys, block, scope.num_keys, BLOCK_S)
                    score = mask_scores(product(q, tl.trans(k)), mask, t_T1, block + column, c_T1, scope, unit, RULES)
                    more, more_second = excess(score, top, edge, RULES)
                    summed += more
                    second += more_second
            step = newton(summed, second, RULES)
            edge += step
            largest = tl.max(tl.abs(step), 0)
            steps += 1
    edge = tl.where(is_empty, float("inf"), tl.where(is_broken, float("nan"), edge))
    summed_TW = tl.zeros((BLOCK_T, output.padded), tl.float32)
    for block in range(start, stop, BLOCK_S):
        if not RULES.is_whole:
            k = read(key, keys, block, scope.num_keys, BLOCK_S)
            score = mask_scores(product(q, tl.trans(k)), mask, t_T1, block + column, c_T1, scope, unit, RULES)
        weight, _ = weights(score, top[:, None], edge[:, None], RULES)
        weight *= weight_factor(row, t_T1, block + column, c_T1, scope, dropping, RULES)
        v = read(value, values, block, scope.num_keys, BLOCK_S)
        summed_TW += product(weight.to(v.dtype), v)
    write(output, place(output, batch, head), first, scope.num_queries, summed_TW, BLOCK_T)
    at, there = peak + 2 * (row.to(tl.int64) * scope.num_queries + t), t < scope.num_queries
    tl.store(at, top, there)
    tl.store(at + 1, edge, there)
