# mypy: disable-error-code="no-untyped-def"
"""The gradients of packed attention, in Triton, with no sum that depends on the order of programs.

A sentence that fits one tile (the usual one) is one program: its weights are made once and give all three gradients.
Of a longer one each program has a tile of queries, which it asks all keys, and a tile of keys, which all queries ask.
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


def blocks_for(longest: int, dtype: torch.dtype) -> Blocks:
    """Two warps for a tile, held to the registers of which eight programs fit a multiprocessor."""
    steps = block_steps(longest)
    return Blocks(steps, warps=8) if dtype == torch.float32 else Blocks(steps, warps=2, registers=128)


def backward(
    grad_THW: Tensor,
    query_HTK: Tensor,
    key_GSK: Tensor,
    value_GSW: Tensor,
    output_THW: Tensor,
    peak_HT: Tensor,
    query_start: Tensor,
    key_start: Tensor | None,
    seed: Tensor | None,
    rules: Rules,
    gradients: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Fill the gradients of query, key and value, given in the shape of each and with any strides."""
    grad, query, key, value = rows(grad_THW), rows(query_HTK), rows(key_GSK), rows(value_GSW)
    (num_heads, num_queries, _), (num_groups, num_keys, _) = query.shape, key.shape
    num_sentences, same = query_start.shape[0] - 1, key_start is None
    blocks = blocks_for(rules.longest, query.dtype)
    slots = num_queries // blocks.steps + (0 if same else num_keys // blocks.steps) + num_sentences + 1
    strides = [stride for tensor in (query, key, value, *gradients) for stride in tensor.stride()[:2]]
    backward_kernel[(slots * num_groups,)](
        query,
        key,
        value,
        output_THW,
        grad,
        peak_HT,
        *gradients,
        query_start,
        query_start if key_start is None else key_start,
        query_start if seed is None else seed,
        *strides,
        output_THW.stride(1),
        output_THW.stride(0),
        grad.stride(1),
        grad.stride(0),
        num_groups,
        num_queries,
        num_keys,
        num_sentences,
        score_scale=rules.scale,
        REPEATS=num_heads // num_groups,
        HALVINGS=halvings(query_start),
        SAME=same,
        **blocks.options(),
        **widths(key, value),
        **rules.arguments(),
    )


@triton.jit
def weigh(
    score,
    grad_weight,
    peaks,
    t,
    s,
    row,
    key_first,
    key_end,
    seed,
    scale,
    low,
    high,
    threshold,
    factor,
    HAS_LOW: tl.constexpr,
    HAS_HIGH: tl.constexpr,
    DROPS: tl.constexpr,
):
    """Weights before and after dropout and the gradient of the former, [T, S] or [S, T] as the indices are."""
    inside = in_band(t, s, key_end, low, high, HAS_LOW, HAS_HIGH)
    weight = tl.exp2(tl.where(inside, score, -float("inf")) * scale - peaks)
    used = weight
    if DROPS:
        kept = is_kept(tl.load(seed), row, s - key_first, threshold)
        used = tl.where(kept, weight * factor, 0.0)
        grad_weight = tl.where(kept, grad_weight * factor, 0.0)
    return weight, used, grad_weight


@triton.jit
def backward_kernel(
    query,
    key,
    value,
    output,
    grad,
    peak,
    grad_query,
    grad_key,
    grad_value,
    query_start,
    key_start,
    seed,
    query_head,
    query_step: tl.constexpr,
    key_head,
    key_step: tl.constexpr,
    value_head,
    value_step: tl.constexpr,
    grad_query_head,
    grad_query_step: tl.constexpr,
    grad_key_head,
    grad_key_step: tl.constexpr,
    grad_value_head,
    grad_value_step: tl.constexpr,
    output_head,
    output_step: tl.constexpr,
    grad_head,
    grad_step: tl.constexpr,
    num_groups,
    num_queries,
    num_keys,
    num_sentences,
    score_scale,
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
    SAME: tl.constexpr,
    HAS_LOW: tl.constexpr,
    HAS_HIGH: tl.constexpr,
    DROPS: tl.constexpr,
):
    """Tile `index` of a sentence's queries and of its keys, for one head of the keys and all heads that read it."""
    group, slot = tl.program_id(0) % num_groups, tl.program_id(0) // num_groups
    sentence, index = find_tile(slot, query_start, key_start, num_sentences, HALVINGS, BLOCK, not SAME)
    query_first, query_end = span(query_start, sentence, num_sentences, num_queries)
    key_first, key_end = span(key_start, sentence, num_sentences, num_keys)
    first_t, first_s = query_first + index * BLOCK, key_first + index * BLOCK
    has_tile = (index >= 0) & ((first_t < query_end) | (first_s < key_end))
    is_whole = tl.maximum(query_end - query_first, key_end - key_first) <= BLOCK
    is_padding = sentence == num_sentences
    group_at = group.to(tl.int64)
    key += group_at * key_head
    value += group_at * value_head
    grad_key += group_at * grad_key_head
    grad_value += group_at * grad_value_head
    step = tl.arange(0, BLOCK)
    s = first_s + step
    key_sum = tl.zeros((BLOCK, PADDED), tl.float32)
    value_sum = tl.zeros((BLOCK, VALUE_PADDED), tl.float32)
    if has_tile & is_padding:
        for repeat in range(REPEATS):
            here = grad_query + (group_at * REPEATS + repeat) * grad_query_head
            put(here, first_t, query_end, grad_query_step, key_sum, WIDTH, PADDED, BLOCK)
        put(grad_key, first_s, key_end, grad_key_step, key_sum, WIDTH, PADDED, BLOCK)
        put(grad_value, first_s, key_end, grad_value_step, value_sum, VALUE_WIDTH, VALUE_PADDED, BLOCK)
    elif has_tile:
        k = fetch(key, first_s, key_end, key_step, WIDTH, PADDED, BLOCK)
        v = fetch(value, first_s, key_end, value_step, VALUE_WIDTH, VALUE_PADDED, BLOCK)
        for repeat in range(REPEATS):
            head = group * REPEATS + repeat
            head_at = tl.cast(head, tl.int64)
            queries, grads = query + head_at * query_head, grad + head_at * grad_head
            outputs, peaks_at = output + head_at * output_head, peak + head_at * num_queries
            grad_queries = grad_query + head_at * grad_query_head
            if is_whole:
                t = first_t + step
                q = fetch(queries, first_t, query_end, query_step, WIDTH, PADDED, BLOCK)
                g = fetch(grads, first_t, query_end, grad_step, VALUE_WIDTH, VALUE_PADDED, BLOCK)
                peaks = tl.load(peaks_at + t, t < query_end, float("inf"))
                weight, used, grad_weight = weigh(
                    product(k, tl.trans(q)),
                    product(v, tl.trans(g)),
                    peaks[None, :],
                    t[None, :],
                    s[:, None],
                    (head * num_queries + t)[None, :],
                    key_first,
                    key_end,
                    seed,
                    scale,
                    low,
                    high,
                    threshold,
                    factor,
                    HAS_LOW,
                    HAS_HIGH,
                    DROPS,
                )
                mean = tl.sum(weight * grad_weight, 0)  # all keys are here, so this is grad · output
                grad_score = (weight * (grad_weight - mean[None, :])).to(q.dtype)
                value_sum += product(used.to(g.dtype), g)
                key_sum += product(grad_score, q)
                query_sum = product(tl.trans(grad_score), k) * score_scale
                put(grad_queries, first_t, query_end, grad_query_step, query_sum, WIDTH, PADDED, BLOCK)
            else:
                if first_t < query_end:
                    t = first_t + step
                    q = fetch(queries, first_t, query_end, query_step, WIDTH, PADDED, BLOCK)
                    g = fetch(grads, first_t, query_end, grad_step, VALUE_WIDTH, VALUE_PADDED, BLOCK)
                    o = fetch(outputs, first_t, query_end, output_step, VALUE_WIDTH, VALUE_PADDED, BLOCK)
                    peaks = tl.load(peaks_at + t, t < query_end, float("inf"))
                    mean = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
                    query_sum = tl.zeros((BLOCK, PADDED), tl.float32)
                    start, stop = in_reach(
                        first_t, first_t + BLOCK, key_first, key_end, low, high, BLOCK, HAS_LOW, HAS_HIGH
                    )
                    for block in range(start, stop, BLOCK):
                        k_there = fetch(key, block, key_end, key_step, WIDTH, PADDED, BLOCK)
                        v_there = fetch(value, block, key_end, value_step, VALUE_WIDTH, VALUE_PADDED, BLOCK)
                        weight, used, grad_weight = weigh(
                            product(q, tl.trans(k_there)),
                            product(g, tl.trans(v_there)),
                            peaks[:, None],
                            t[:, None],
                            (block + step)[None, :],
                            (head * num_queries + t)[:, None],
                            key_first,
                            key_end,
                            seed,
                            scale,
                            low,
                            high,
                            threshold,
                            factor,
                            HAS_LOW,
                            HAS_HIGH,
                            DROPS,
                        )
                        grad_score = (weight * (grad_weight - mean[:, None])).to(q.dtype)
                        query_sum += product(grad_score, k_there)
                    query_sum *= score_scale
                    put(grad_queries, first_t, query_end, grad_query_step, query_sum, WIDTH, PADDED, BLOCK)
                start, stop = in_reach(
                    first_s, first_s + BLOCK, query_first, query_end, -high, -low, BLOCK, HAS_HIGH, HAS_LOW
                )
                for block in range(start, tl.where(first_s < key_end, stop, start), BLOCK):
                    t = block + step
                    q = fetch(queries, block, query_end, query_step, WIDTH, PADDED, BLOCK)
                    g = fetch(grads, block, query_end, grad_step, VALUE_WIDTH, VALUE_PADDED, BLOCK)
                    o = fetch(outputs, block, query_end, output_step, VALUE_WIDTH, VALUE_PADDED, BLOCK)
                    peaks = tl.load(peaks_at + t, t < query_end, float("inf"))
                    mean = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
                    weight, used, grad_weight = weigh(
                        product(k, tl.trans(q)),
                        product(v, tl.trans(g)),
                        peaks[None, :],
                        t[None, :],
                        s[:, None],
                        (head * num_queries + t)[None, :],
                        key_first,
                        key_end,
                        seed,
                        scale,
                        low,
                        high,
                        threshold,
                        factor,
                        HAS_LOW,
                        HAS_HIGH,
                        DROPS,
                    )
                    grad_score = (weight * (grad_weight - mean[None, :])).to(q.dtype)
                    value_sum += product(used.to(g.dtype), g)
                    key_sum += product(grad_score, q)
        put(grad_key, first_s, key_end, grad_key_step, key_sum * score_scale, WIDTH, PADDED, BLOCK)
        put(grad_value, first_s, key_end, grad_value_step, value_sum, VALUE_WIDTH, VALUE_PADDED, BLOCK)
