# mypy: disable-error-code="no-untyped-def"
"""softmax(scale q·k) v of packed sentences, in Triton: a program has one tile of queries, of one sentence and head.

Beside the output it stores log2 of each row's sum of powers (`peak`), from which the backward pass has the weights.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.packed_tiles import (
    Blocks,
    Rules,
    block_steps,
    fetch,
    find_tile,
    halvings,
    in_band,
    in_reach,
    is_kept,
    product,
    put,
    rows,
    span,
    widths,
)


def blocks_for(longest: int, width: int, dtype: torch.dtype) -> Blocks:
    """A warp for a tile: nothing is exchanged between warps, and twelve programs fit a multiprocessor."""
    steps = block_steps(longest)
    if dtype == torch.float32:
        return Blocks(steps, warps=8)  # no matrix unit multiplies float32 exactly
    return Blocks(steps, warps=1, registers=168) if width <= 64 else Blocks(steps, warps=2)


def forward(
    query_HTK: Tensor,
    key_GSK: Tensor,
    value_GSW: Tensor,
    query_start: Tensor,
    key_start: Tensor | None,
    seed: Tensor | None,
    rules: Rules,
) -> tuple[Tensor, Tensor]:
    """The output [T, H, W], as the next projection wants to read it, and the peaks [H, T]."""
    query, key, value = rows(query_HTK), rows(key_GSK), rows(value_GSW)
    (num_heads, num_queries, _), num_sentences = query.shape, query_start.shape[0] - 1
    output = query.new_empty(num_queries, num_heads, value.shape[-1])
    peak = query.new_empty(num_heads, num_queries, dtype=torch.float32)
    blocks = blocks_for(rules.longest, max(query.shape[-1], value.shape[-1]), query.dtype)
    slots = num_queries // blocks.steps + num_sentences + 1
    forward_kernel[(slots * num_heads,)](
        query,
        key,
        value,
        output,
        peak,
        query_start,
        query_start if key_start is None else key_start,
        query_start if seed is None else seed,
        *query.stride()[:2],
        *key.stride()[:2],
        *value.stride()[:2],
        output.stride(1),
        output.stride(0),
        num_heads,
        num_queries,
        num_sentences,
        REPEATS=num_heads // key.shape[0],
        HALVINGS=halvings(query_start),
        **blocks.options(),
        **widths(key, value),
        **rules.arguments(),
    )
    return output, peak


@triton.jit
def masked_score(
    q,
    key,
    key_step: tl.constexpr,
    t,
    block,
    key_end,
    low,
    high,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_LOW: tl.constexpr,
    HAS_HIGH: tl.constexpr,
):
    """q·k of a block of keys, -inf where the query may not look."""
    k = fetch(key, block, key_end, key_step, WIDTH, PADDED, BLOCK)
    s = block + tl.arange(0, BLOCK)
    inside = in_band(t[:, None], s[None, :], key_end, low, high, HAS_LOW, HAS_HIGH)
    return tl.where(inside, product(q, tl.trans(k)), -float("inf"))


@triton.jit
def above(top):
    """The row's maximum, finite also where no key was seen yet."""
    return tl.where(top == -float("inf"), 0.0, top)


@triton.jit
def powers(score, top, scale):
    """exp(score - top), with a positive scale that takes it to powers of two."""
    return tl.exp2(score * scale - (above(top) * scale)[:, None])


@triton.jit
def forward_kernel(
    query,
    key,
    value,
    output,
    peak,
    query_start,
    key_start,
    seed,
    query_head,
    query_step: tl.constexpr,
    key_head,
    key_step: tl.constexpr,
    value_head,
    value_step: tl.constexpr,
    output_head,
    output_step: tl.constexpr,
    num_heads,
    num_queries,
    num_sentences,
    scale,
    low,
    high,
    threshold,
    factor,
    REPEATS: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    VALUE_PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    HALVINGS: tl.constexpr,
    HAS_LOW: tl.constexpr,
    HAS_HIGH: tl.constexpr,
    DROPS: tl.constexpr,
):
    """A tile of queries against all keys of its sentence, with a running maximum and sum."""
    head, slot = tl.program_id(0) % num_heads, tl.program_id(0) // num_heads
    sentence, index = find_tile(slot, query_start, key_start, num_sentences, HALVINGS, BLOCK, False)
    query_first, query_end = span(query_start, sentence, num_sentences, num_queries)
    key_first, key_end = span(key_start, sentence, num_sentences, 0)  # padding has no keys: its output is 0
    first = query_first + index * BLOCK
    if (index >= 0) & (first < query_end):
        key += (head // REPEATS).to(tl.int64) * key_head
        value += (head // REPEATS).to(tl.int64) * value_head
        q = fetch(query + head.to(tl.int64) * query_head, first, query_end, query_step, WIDTH, PADDED, BLOCK)
        step = tl.arange(0, BLOCK)
        t = first + step
        row = head * num_queries + t
        start, stop = in_reach(first, first + BLOCK, key_first, key_end, low, high, BLOCK, HAS_LOW, HAS_HIGH)
        # the first block of keys, with the usual sentence the only one, has nothing before it to be scaled
        score = masked_score(q, key, key_step, t, start, key_end, low, high, WIDTH, PADDED, BLOCK, HAS_LOW, HAS_HIGH)
        top = tl.max(score, 1)
        weight = powers(score, top, scale)
        total = tl.sum(weight, 1)
        if DROPS:
            kept = is_kept(tl.load(seed), row[:, None], (start - key_first + step)[None, :], threshold)
            weight = tl.where(kept, weight, 0.0)
        v = fetch(value, start, key_end, value_step, VALUE_WIDTH, VALUE_PADDED, BLOCK)
        summed = product(weight.to(v.dtype), v)
        for block in range(start + BLOCK, stop, BLOCK):
            score = masked_score(
                q, key, key_step, t, block, key_end, low, high, WIDTH, PADDED, BLOCK, HAS_LOW, HAS_HIGH
            )
            higher = tl.maximum(top, tl.max(score, 1))
            weight, fade = powers(score, higher, scale), tl.exp2((top - above(higher)) * scale)
            total = total * fade + tl.sum(weight, 1)
            if DROPS:
                kept = is_kept(tl.load(seed), row[:, None], (block - key_first + step)[None, :], threshold)
                weight = tl.where(kept, weight, 0.0)
            v = fetch(value, block, key_end, value_step, VALUE_WIDTH, VALUE_PADDED, BLOCK)
            summed = summed * fade[:, None] + product(weight.to(v.dtype), v)
            top = higher
        is_empty = total == 0  # no key was seen: the output is 0, and the peak above every score
        total = tl.where(is_empty, 1.0, total)
        summed *= (factor / total)[:, None]
        put(
            output + head.to(tl.int64) * output_head,
            first,
            query_end,
            output_step,
            summed,
            VALUE_WIDTH,
            VALUE_PADDED,
            BLOCK,
        )
        peaks = tl.where(is_empty, float("inf"), top * scale + tl.log2(total))
        tl.store(peak + head.to(tl.int64) * num_queries + t, peaks, t < query_end)
