# mypy: disable-error-code="no-untyped-def"
"""The gradients of packed attention, in Triton, with no sum that depends on the order of programs.

A sentence that fits one tile (nearly every one) is one program: its weights are made once and give all three gradients.
Of a longer one each program has a tile of queries, for which it reads all keys, and a tile of keys, for which it reads
all queries.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.packed.launches import Launch, PackedBlocks, PackedTensor, launches, run, short_steps
from saccade.attention.kernels.packed.op import PackedInputs
from saccade.attention.kernels.packed.tiles import (
    find_work,
    in_band,
    is_kept,
    keys_in_reach,
    product,
    queries_in_reach,
    read,
    turn,
    write,
)
from saccade.ops.kernels.columns import ColumnBlocks as Strip

TOTALS = Strip(rows=512, columns=8, warps=8)  # of slots


def blocks_for(longest: int, width: int, dtype: torch.dtype) -> tuple[PackedBlocks, PackedBlocks]:
    """Choose the blocks for short and for long sentences: few registers for many programs, but hardly any spills."""
    steps = short_steps(longest)
    if dtype == torch.float32:
        return PackedBlocks(steps, warps=8), PackedBlocks(32, warps=8)
    if width <= 64:
        return PackedBlocks(steps, warps=4), PackedBlocks(64, warps=4, registers=168)
    return PackedBlocks(steps, warps=4), PackedBlocks(32, warps=4)


class Sums(NamedTuple):
    """Buffers for the sums over rows of programs' tiles of query's and value's gradients, [slots, width]."""

    data: Tensor
    first: int  # the slot of the first program
    width: tl.constexpr


def backward(
    grad_THW: Tensor,
    given: PackedInputs,
    output_THW: Tensor,
    peak_HT: Tensor,
    gradients: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """Fill the gradients of query, key and value, given in the shape of each and with any strides.

    Return their float32 sums over steps, one behind the other: [H K + G K + G W].
    """
    query_HTK, key_GSK, value_GSW, *_ = given
    (num_heads, _, width), (num_groups, _, value_width) = query_HTK.shape, value_GSW.shape
    by_step = (output_THW.transpose(0, 1), grad_THW.transpose(0, 1))
    tensors = [PackedTensor.of(x) for x in (query_HTK, key_GSK, value_GSW, *by_step, *gradients)]
    cuts = blocks_for(given.longest, max(width, value_width), query_HTK.dtype)
    parts = launches(cuts, given)
    noted = num_heads * width + num_groups * value_width
    partial = peak_HT.new_empty(parts[-1].end, noted)

    def start(part: Launch) -> None:
        backward_kernel[(part.slots * num_groups,)](
            *tensors,
            peak_HT,
            Sums(partial, part.first, tl.constexpr(noted)),
            num_groups=num_groups,
            score_scale=given.scale,
            **part.options,
        )

    run(parts, query_HTK.device, start)
    sums = partial.new_empty(noted + num_groups * width)
    sums_kernel[(triton.cdiv(len(sums), TOTALS.columns),)](
        partial,
        sums,
        len(partial),
        QUERIES=num_heads * width,
        KEYS=num_groups * width,
        WIDTH=len(sums),
        ROWS=TOTALS.rows,
        COLUMNS=TOTALS.columns,
        num_warps=TOTALS.warps,
    )
    return sums


@triton.jit
def read_queries(query, grad, peak, head, first, end, sentences, BLOCK: tl.constexpr):
    """Read a tile of queries and their outputs' gradients, both transposed too, the queries' places and their peaks."""
    t = first + tl.arange(0, BLOCK)
    peaks = tl.load(peak + tl.cast(head, tl.int64) * sentences.num_queries + t, t < end, float("inf"))
    q, g = read(query, head, first, end, BLOCK), read(grad, head, first, end, BLOCK)
    q_KT, g_KT = turn(query, q, head, first, end, BLOCK), turn(grad, g, head, first, end, BLOCK)
    return q, g, q_KT, g_KT, t, peaks


@triton.jit
def dot_rows(g, o):
    """Multiply two tiles row by row and sum."""
    return tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)


@triton.jit
def weigh(k, v, s, queries, mean, row, key_first, key_end, band, dropping, scale, DROPS: tl.constexpr):
    """Compute the weights after dropout of keys and queries [S, T], and the gradients of the scores.

    Without `mean`, the products of gradient and output, all keys are here and give it.
    """
    q, g, q_KT, g_KT, t, peaks = queries
    inside = in_band(t[None, :], s[:, None], key_end, band.low, band.high, band.has_low, band.has_high)
    score = tl.where(inside, product(k, q_KT), -float("inf"))
    weight = tl.exp2(score * scale - peaks[None, :])
    used, grad_weight = weight, product(v, g_KT)
    if DROPS:
        kept = is_kept(tl.load(dropping.seed), (row + t)[None, :], (s - key_first)[:, None], dropping.threshold)
        used = tl.where(kept, weight * dropping.factor, 0.0)
        grad_weight = tl.where(kept, grad_weight * dropping.factor, 0.0)
    if mean is None:
        mean = tl.sum(weight * grad_weight, 0)
    return used.to(g.dtype), (weight * (grad_weight - mean[None, :])).to(q.dtype)


@triton.jit
def note(sums, slot, first, like, rows):
    """Write the sum of a tile's rows to a program's slot; without rows 0."""
    row, column = tl.arange(0, 16), tl.arange(0, like.padded)
    at = sums.data + (sums.first + slot) * sums.width + first + column
    inside = column < like.width
    if rows is None:
        tl.store(at, tl.zeros((like.padded,), tl.float32), inside)
    elif like.data.dtype.element_ty == tl.float32:
        tl.store(at, tl.sum(rows, 0), inside)
    else:  # the matrix unit adds what threads would have to tell each other; of equal rows it gives, the first is kept
        ones = tl.full((16, rows.shape[0]), 1.0, tl.float32).to(like.data.dtype.element_ty)
        total = product(ones, rows.to(ones.dtype))
        tl.store(at[None, :] + row[:, None] * 0, total, (row == 0)[:, None] & inside[None, :])


@triton.jit
def sums_kernel(
    partial,
    total,
    num_slots,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sum what programs wrote to all slots. The gradients of keys sum to 0: softmax ignores a constant for all keys."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    noted = tl.where(column < QUERIES, column, column - KEYS)
    is_noted = (column < QUERIES) | ((column >= QUERIES + KEYS) & (column < WIDTH))
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, num_slots, ROWS):
        row = first + tl.arange(0, ROWS)
        at = row[:, None] * (WIDTH - KEYS) + noted[None, :]
        sums += tl.load(partial + at, (row < num_slots)[:, None] & is_noted[None, :], 0.0)
    tl.store(total + column, tl.sum(sums, 0), column < WIDTH)


@triton.jit
def backward_kernel(
    query,
    key,
    value,
    output,
    grad,
    grad_query,
    grad_key,
    grad_value,
    peak,
    sums,
    sentences,
    band,
    dropping,
    scale,
    score_scale,
    num_groups,
    TILE: tl.constexpr,
):
    """Compute a tile of a sentence's queries and one of its keys, for one key/value head and all heads that read it."""
    BLOCK: tl.constexpr = TILE.block
    group, slot = tl.program_id(0) % num_groups, tl.program_id(0) // num_groups
    query_first, query_end, key_first, key_end, begin, is_padding, has_work = find_work(slot, sentences, TILE)
    first_t, first_s = query_first + begin, key_first + begin
    key_sum = tl.zeros((BLOCK, grad_key.padded), tl.float32)
    value_sum = tl.zeros((BLOCK, grad_value.padded), tl.float32)
    if has_work & is_padding:
        for repeat in range(TILE.repeats):
            write(grad_query, group * TILE.repeats + repeat, first_t, query_end, key_sum, BLOCK)
        write(grad_key, group, first_s, key_end, key_sum, BLOCK)
        write(grad_value, group, first_s, key_end, value_sum, BLOCK)
    if is_padding | (has_work == 0):
        for repeat in range(TILE.repeats):
            note(sums, slot, (group * TILE.repeats + repeat) * grad_query.width, grad_query, None)
        note(sums, slot, num_groups * TILE.repeats * grad_query.width + group * grad_value.width, grad_value, None)
    else:
        is_whole = tl.maximum(query_end - query_first, key_end - key_first) <= BLOCK
        step = tl.arange(0, BLOCK)
        s = first_s + step
        for repeat in range(TILE.repeats):
            head = group * TILE.repeats + repeat
            row = head * sentences.num_queries
            if TILE.skip == 0 or is_whole:
                queries = read_queries(query, grad, peak, head, first_t, query_end, sentences, BLOCK)
                k, v = read(key, group, first_s, key_end, BLOCK), read(value, group, first_s, key_end, BLOCK)
                used, grad_score = weigh(
                    k, v, s, queries, None, row, key_first, key_end, band, dropping, scale, TILE.drops
                )
                value_sum += product(used, queries[1])
                key_sum += product(grad_score, queries[0])
                query_sum = product(tl.trans(grad_score), k) * score_scale
                write(grad_query, head, first_t, query_end, query_sum, BLOCK)
                note(sums, slot, head * grad_query.width, grad_query, query_sum)
            elif TILE.skip > 0:
                if first_t < query_end:
                    queries = read_queries(query, grad, peak, head, first_t, query_end, sentences, BLOCK)
                    mean = dot_rows(queries[1], read(output, head, first_t, query_end, BLOCK))
                    query_sum = tl.zeros((BLOCK, grad_query.padded), tl.float32)
                    start, stop = keys_in_reach(first_t, key_first, key_end, band, BLOCK)
                    for block in range(start, stop, BLOCK):
                        k_there = read(key, group, block, key_end, BLOCK)
                        s_there = block + step
                        v_there = read(value, group, block, key_end, BLOCK)
                        _, grad_score = weigh(
                            k_there,
                            v_there,
                            s_there,
                            queries,
                            mean,
                            row,
                            key_first,
                            key_end,
                            band,
                            dropping,
                            scale,
                            TILE.drops,
                        )
                        query_sum += product(tl.trans(grad_score), k_there)
                    query_sum *= score_scale
                    write(grad_query, head, first_t, query_end, query_sum, BLOCK)
                    note(sums, slot, head * grad_query.width, grad_query, query_sum)
                else:
                    note(sums, slot, head * grad_query.width, grad_query, None)
                k, v = read(key, group, first_s, key_end, BLOCK), read(value, group, first_s, key_end, BLOCK)
                start, stop = queries_in_reach(first_s, query_first, query_end, band, BLOCK)
                for block in range(start, tl.where(first_s < key_end, stop, start), BLOCK):
                    queries = read_queries(query, grad, peak, head, block, query_end, sentences, BLOCK)
                    mean = dot_rows(queries[1], read(output, head, block, query_end, BLOCK))
                    used, grad_score = weigh(
                        k, v, s, queries, mean, row, key_first, key_end, band, dropping, scale, TILE.drops
                    )
                    value_sum += product(used, queries[1])
                    key_sum += product(grad_score, queries[0])
        write(grad_key, group, first_s, key_end, key_sum * score_scale, BLOCK)
        write(grad_value, group, first_s, key_end, value_sum, BLOCK)
        note(sums, slot, num_groups * TILE.repeats * grad_query.width + group * grad_value.width, grad_value, value_sum)
