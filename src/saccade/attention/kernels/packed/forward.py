# mypy: disable-error-code="no-untyped-def"
"""softmax(scale q·k) v of packed sentences, in Triton: a program has one tile of queries, of one sentence and head.

Beside the output it stores log2 of each row's sum of powers (`peak`), from which the backward pass has the weights.
"""

from __future__ import annotations

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
    read,
    turn,
    write,
)


def blocks_for(longest: int, width: int, dtype: torch.dtype) -> tuple[PackedBlocks, PackedBlocks]:
    """Choose the blocks for short and for long sentences: one warp exchanges nothing, and fourteen programs fit."""
    steps = short_steps(longest)
    if dtype == torch.float32:
        return PackedBlocks(steps, warps=8), PackedBlocks(32, warps=8)  # no matrix unit multiplies float32 exactly
    if width <= 64:
        return PackedBlocks(steps, warps=1, registers=144), PackedBlocks(64, warps=4, registers=96)
    return PackedBlocks(steps, warps=2), PackedBlocks(64, warps=4)


def forward(given: PackedInputs) -> tuple[Tensor, Tensor]:
    """Compute the output [T, H, W], as the next projection wants to read it, and the peaks [H, T]."""
    query_HTK, key_GSK, value_GSW, *_ = given
    (num_heads, num_queries, width), value_width = query_HTK.shape, value_GSW.shape[-1]
    output = query_HTK.new_empty(num_queries, num_heads, value_width)
    peak = query_HTK.new_empty(num_heads, num_queries, dtype=torch.float32)
    tensors = [PackedTensor.of(x) for x in (query_HTK, key_GSK, value_GSW, output.transpose(0, 1))]
    cuts = blocks_for(given.longest, max(width, value_width), query_HTK.dtype)

    def start(part: Launch) -> None:
        forward_kernel[(part.slots * num_heads,)](
            *tensors,
            peak,
            num_heads=num_heads,
            **part.options,
        )

    run(launches(cuts, given), query_HTK.device, start)
    return output, peak


@triton.jit
def above(top):
    """Return the row's maximum, or 0 where no key was seen yet."""
    return tl.where(top == -float("inf"), 0.0, top)


@triton.jit
def powers(q, k_KS, t, s, top, key_end, band, scale):
    """Compute exp(q·k - top), 0 where the query may not attend, and the new top; `scale` > 0 is for powers of two."""
    inside = in_band(t[:, None], s[None, :], key_end, band.low, band.high, band.has_low, band.has_high)
    score = tl.where(inside, product(q, k_KS), -float("inf"))
    top = tl.maximum(top, tl.max(score, 1))
    return tl.exp2(score * scale - (above(top) * scale)[:, None]), top


@triton.jit
def drop_weights(weight, row, place, dropping, DROPS: tl.constexpr):
    """Set the weights that dropout draws to 0."""
    if DROPS:
        kept = is_kept(tl.load(dropping.seed), row[:, None], place[None, :], dropping.threshold)
        weight = tl.where(kept, weight, 0.0)
    return weight


@triton.jit
def forward_kernel(query, key, value, output, peak, sentences, band, dropping, scale, num_heads, TILE: tl.constexpr):
    """Compute a tile of queries over all keys of its sentence, with a running maximum and sum where those are many."""
    BLOCK: tl.constexpr = TILE.block
    head, slot = tl.program_id(0) % num_heads, tl.program_id(0) // num_heads
    query_first, query_end, key_first, key_end, begin, is_padding, has_work = find_work(slot, sentences, TILE)
    first = query_first + begin
    if has_work & (first < query_end):
        group = head // TILE.repeats
        key_end = tl.where(is_padding, key_first, key_end)  # its output is 0
        step = tl.arange(0, BLOCK)
        t = first + step
        row = head * sentences.num_queries + t
        start, stop = key_first, key_end
        if TILE.skip > 0:
            start, stop = keys_in_reach(first, key_first, key_end, band, BLOCK)
        q = read(query, head, first, query_end, BLOCK)
        k_KS = turn(key, read(key, group, start, key_end, BLOCK), group, start, key_end, BLOCK)
        v = read(value, group, start, key_end, BLOCK)
        # the first block of keys, with most sentences the only one, has nothing before it to be scaled
        top = tl.full((BLOCK,), -float("inf"), tl.float32)
        weight, top = powers(q, k_KS, t, start + step, top, key_end, band, scale)
        total = tl.sum(weight, 1)
        summed = product(drop_weights(weight, row, start - key_first + step, dropping, TILE.drops).to(v.dtype), v)
        if TILE.skip > 0:
            for block in range(start + BLOCK, stop, BLOCK):
                k_KS = turn(key, read(key, group, block, key_end, BLOCK), group, block, key_end, BLOCK)
                v = read(value, group, block, key_end, BLOCK)
                weight, higher = powers(q, k_KS, t, block + step, top, key_end, band, scale)
                fade = tl.exp2((top - above(higher)) * scale)
                total = total * fade + tl.sum(weight, 1)
                weight = drop_weights(weight, row, block - key_first + step, dropping, TILE.drops)
                summed = summed * fade[:, None] + product(weight.to(v.dtype), v)
                top = higher
        is_empty = total == 0  # no key was seen: the output is 0, and the peak above every score
        total = tl.where(is_empty, 1.0, total)
        write(output, head, first, query_end, summed * (dropping.factor / total)[:, None], BLOCK)
        peaks = tl.where(is_empty, float("inf"), top * scale + tl.log2(total))
        tl.store(peak + head.to(tl.int64) * sentences.num_queries + t, peaks, t < query_end)
