# mypy: disable-error-code="no-untyped-def"
"""The gradients of streamed attention, in Triton: weights are made again from each row's top and edge.

With a = normalise(e), de_i = s_i (da_i - m), m = sum_j s_j da_j / sum_j s_j, where s is a (softmax), 1 on the support
(sparsemax) or sqrt(a) (entmax15). One kernel has a tile of queries: it finds m, and the gradients of the queries and of
local_p's centres. The other has a tile of keys. Nothing is added by two programs, so gradients are repeatable.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.packed.tiles import in_reach, product
from saccade.attention.kernels.sparse.op import SparseInputs
from saccade.attention.kernels.sparse.tiles import (
    SparseTensor,
    Tiles,
    centres_of,
    find_tile,
    mask_of,
    mask_scores,
    neighbourhood,
    options_of,
    place,
    reach,
    read,
    weight_factor,
    weights,
    write,
)


def tiles_for(num_keys: int, width: int, dtype: torch.dtype) -> tuple[Tiles, Tiles]:
    """Choose the tiles of the queries' kernel and of the keys'."""
    if dtype == torch.float32:
        small = 32 if width <= 128 else 16
        return Tiles(small, 32, warps=8), Tiles(32, small, warps=8)
    if width <= 64:
        return Tiles(64, 128, warps=8) if num_keys <= 128 else Tiles(64, 64, warps=4), Tiles(32, 64, warps=4)
    return Tiles(64, 32, warps=8), Tiles(32, 64 if width <= 128 else 32, warps=8)


def backward(grad_BHTW: Tensor, given: SparseInputs, peak_BHT2: Tensor, gradients: list[Tensor]) -> None:
    """Fill the gradients of query, key, value and, where there are some, centres."""
    query_BHTK, key_BGSK, value_BGSW, *_ = given
    (batch, heads, num_queries, width), (groups, num_keys) = query_BHTK.shape, key_BGSK.shape[1:3]
    of_query, of_key, of_value, *of_centre = gradients
    mean = peak_BHT2.new_empty(batch, heads, num_queries)
    inputs = [SparseTensor.of(x) for x in (query_BHTK, key_BGSK, value_BGSW, grad_BHTW)]
    arguments, rules = options_of(given)
    arguments["scale"] = given.scale
    by_query, by_key = (
        tiles.fit(num_queries, num_keys)
        for tiles in tiles_for(num_keys, max(width, value_BGSW.shape[-1]), query_BHTK.dtype)
    )
    query_kernel[(batch * heads * triton.cdiv(num_queries, by_query.queries),)](
        *inputs,
        SparseTensor.of(of_query),
        of_centre[0] if of_centre else None,
        peak_BHT2,
        mean,
        **arguments,
        **by_query.options(rules, num_keys),
    )
    key_kernel[(batch * groups * triton.cdiv(num_keys, by_key.keys),)](
        *inputs,
        SparseTensor.of(of_key),
        SparseTensor.of(of_value),
        peak_BHT2,
        mean,
        **arguments,
        **by_key.options(rules, num_keys),
    )


@triton.jit
def weigh(score, pull, top, edge, row, t, s, centres, scope, dropping, RULES: tl.constexpr):
    """Compute the weights after dropout from scores; s; and from those weights' gradients that of a."""
    weight, bend = weights(score, top, edge, RULES)
    share = weight_factor(row, t, s, centres, scope, dropping, RULES)
    return weight * share, bend, pull * share


@triton.jit
def query_kernel(
    query, key, value, grad, grad_query, grad_centre, peak, mean, scope, dropping, unit, scale, RULES: tl.constexpr
):
    """Compute a tile of queries over all keys they may see: twice, since m must be known first."""
    BLOCK_T: tl.constexpr = RULES.block_t
    BLOCK_S: tl.constexpr = RULES.block_s
    row, batch, head, first, keys, values, mask, t, centres = find_tile(key, value, scope, RULES)
    t_T1, column, c_T1 = t[:, None], tl.arange(0, BLOCK_S)[None, :], centres[:, None]
    start, stop = reach(first, scope, centres, RULES)
    at, there = row.to(tl.int64) * scope.num_queries + t, t < scope.num_queries
    top, edge = tl.load(peak + 2 * at, there, 0.0)[:, None], tl.load(peak + 2 * at + 1, there, float("inf"))[:, None]
    q = read(query, place(query, batch, head), first, scope.num_queries, BLOCK_T)
    g = read(grad, place(grad, batch, head), first, scope.num_queries, BLOCK_T)
    bends = tl.zeros((BLOCK_T,), tl.float32)
    pulls, drift = bends, bends
    bend = tl.zeros((BLOCK_T, BLOCK_S), tl.float32)
    pulled = bend
    for block in range(start, stop, BLOCK_S):
        s = block + column
        k = read(key, keys, block, scope.num_keys, BLOCK_S)
        v = read(value, values, block, scope.num_keys, BLOCK_S)
        score = mask_scores(product(q, tl.trans(k)), mask, t_T1, s, c_T1, scope, unit, RULES)
        pull = product(g, tl.trans(v))
        used, bend, pulled = weigh(score, pull, top, edge, row, t_T1, s, c_T1, scope, dropping, RULES)
        bends += tl.sum(bend, 1)
        pulls += tl.sum(bend * pulled, 1)
        if RULES.is_local:
            drift += tl.sum(used * pull * (s - c_T1), 1)
    m = pulls / tl.where(bends == 0, 1.0, bends)
    tl.store(mean + at, m, there)
    if RULES.is_local:  # d exp(-2 (s - c)² / r²) / dc = 4 (s - c) / r² of it
        tl.store(grad_centre + at, drift * (4.0 / (scope.radius * scope.radius)), there)
    query_sum = tl.zeros((BLOCK_T, grad_query.padded), tl.float32)
    for block in range(start, stop, BLOCK_S):
        s = block + column
        k = read(key, keys, block, scope.num_keys, BLOCK_S)
        if not RULES.is_whole:
            v = read(value, values, block, scope.num_keys, BLOCK_S)
            score = mask_scores(product(q, tl.trans(k)), mask, t_T1, s, c_T1, scope, unit, RULES)
            pull = product(g, tl.trans(v))
            _, bend, pulled = weigh(score, pull, top, edge, row, t_T1, s, c_T1, scope, dropping, RULES)
        query_sum += product((bend * (pulled - m[:, None])).to(k.dtype), k)
    here = place(grad_query, batch, head)
    write(grad_query, here, first, scope.num_queries, query_sum * scale, BLOCK_T)


@triton.jit
def key_kernel(
    query, key, value, grad, grad_key, grad_value, peak, mean, scope, dropping, unit, scale, RULES: tl.constexpr
):
    """Compute a tile of keys and values over all queries of all heads that share it."""
    BLOCK_T: tl.constexpr = RULES.block_t
    BLOCK_S: tl.constexpr = RULES.block_s
    num_tiles = tl.cdiv(scope.num_keys, BLOCK_S)
    groups = scope.num_heads // RULES.repeats
    cell, first = tl.program_id(0) // num_tiles, tl.program_id(0) % num_tiles * BLOCK_S
    batch, group = cell // groups, cell % groups
    s = (first + tl.arange(0, BLOCK_S))[:, None]
    k = read(key, place(key, batch, group), first, scope.num_keys, BLOCK_S)
    v = read(value, place(value, batch, group), first, scope.num_keys, BLOCK_S)
    start, stop = in_reach(
        first,
        first + BLOCK_S,
        0,
        scope.num_queries,
        -scope.high,
        -scope.low,
        BLOCK_T,
        RULES.has_high,
        RULES.has_low,
    )
    key_sum = tl.zeros((BLOCK_S, grad_key.padded), tl.float32)
    value_sum = tl.zeros((BLOCK_S, grad_value.padded), tl.float32)
    for repeat in range(RULES.repeats):
        head = group * RULES.repeats + repeat
        row = batch * scope.num_heads + head
        queries, grads, mask = place(query, batch, head), place(grad, batch, head), mask_of(scope, batch, head, RULES)
        for block in range(start, stop, BLOCK_T):
            t = block + tl.arange(0, BLOCK_T)
            centres = centres_of(scope, row, t, RULES)
            meets = True
            if RULES.is_local:
                near, far = neighbourhood(centres, scope)
                meets = (near < first + BLOCK_S) & (far >= first)
            if meets:
                at, there = row.to(tl.int64) * scope.num_queries + t, t < scope.num_queries
                top, edge = tl.load(peak + 2 * at, there, 0.0), tl.load(peak + 2 * at + 1, there, float("inf"))
                m = tl.load(mean + at, there, 0.0)[None, :]
                t_1T, c_1T = t[None, :], centres[None, :]
                q = read(query, queries, block, scope.num_queries, BLOCK_T)
                g = read(grad, grads, block, scope.num_queries, BLOCK_T)
                score = mask_scores(product(k, tl.trans(q)), mask, t_1T, s, c_1T, scope, unit, RULES)
                pull = product(v, tl.trans(g))
                used, bend, pulled = weigh(
                    score, pull, top[None, :], edge[None, :], row, t_1T, s, c_1T, scope, dropping, RULES
                )
                value_sum += product(used.to(g.dtype), g)
                grad_score = tl.where(bend == 0, 0.0, bend * (pulled - m))  # a row's NaN stays off keys it can't see
                key_sum += product(grad_score.to(q.dtype), q)
    here = place(grad_key, batch, group)
    write(grad_key, here, first, scope.num_keys, key_sum * scale, BLOCK_S)
    here = place(grad_value, batch, group)
    write(grad_value, here, first, scope.num_keys, value_sum, BLOCK_S)
