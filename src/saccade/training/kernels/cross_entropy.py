"""Label-smoothed cross-entropy of rows of logits: a program replaces a row by its gradient.

A row is read once and kept in registers until its gradient is known: its largest logit first, then the sum of
exponentials and the sum of logits. Rows that are too long for that, or wider than bfloat16, are read twice.

R: rows of logits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

ALIGNMENT = 8  # entries: 16 bytes of bfloat16
LOG2_E = tl.constexpr(1.4426950408889634)
NO_LOGIT = tl.constexpr(0xFF80)  # -inf in bfloat16


class LossBlocks(NamedTuple):
    """Tuning of a launch: columns of a tile, and the warps and registers a thread of the program that has a row."""

    columns: int
    warps: int
    registers: int | None = None
    keeps: bool = True  # the row stays in registers


TWICE = LossBlocks(4096, 16, keeps=False)


def blocks_for(logits_RV: Tensor) -> LossBlocks:
    """Choose blocks: the row in registers if it fits, 64 a thread, so that 32 warps run on a multiprocessor, or 128."""
    vocabulary = logits_RV.shape[1]
    if logits_RV.dtype != torch.bfloat16 or vocabulary > 88 << 10 or not _is_aligned(logits_RV):
        return TWICE
    warps = min(16, triton.next_power_of_2(triton.cdiv(vocabulary, 2560)))  # 40 registers of pairs, 24 to work with
    return LossBlocks(256 * warps, warps, 64 if vocabulary <= 40 << 10 else 128)


def _is_aligned(logits_RV: Tensor) -> bool:
    return logits_RV.stride(0) % ALIGNMENT == 0 and logits_RV.storage_offset() % ALIGNMENT == 0


def differentiate_(
    logits_RV: Tensor, target_R: Tensor, smoothing: float, loss_2R: Tensor, *, blocks: LossBlocks | None = None
) -> None:
    """Replace logits by their gradients; write losses and negative log-likelihoods to `loss_2R`. A target < 0 is none.

    Rows that begin at multiples of 8 entries are filled up to one: what lies there belongs to the row, and is lost.
    """
    num_rows, vocabulary = logits_RV.shape
    blocks = blocks or blocks_for(logits_RV)
    width = triton.cdiv(vocabulary, ALIGNMENT) * ALIGNMENT if _is_aligned(logits_RV) else vocabulary
    (_read_once if blocks.keeps else _read_twice)[(num_rows,)](
        logits_RV,
        target_R,
        *loss_2R,
        smoothing,
        STRIDE=logits_RV.stride(0),
        VOCABULARY=vocabulary,
        WIDTH=width,
        COLUMNS=min(blocks.columns, triton.next_power_of_2(width)),
        num_warps=blocks.warps,
        **({"half": 16, "maxnreg": blocks.registers} if blocks.keeps else {}),
    )


@triton.jit
def _read_once(  # type: ignore[no-untyped-def]
    logits_ptr,
    target_ptr,
    loss_ptr,
    likelihood_ptr,
    smoothing,
    half,
    STRIDE: tl.constexpr,
    VOCABULARY: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Widen pairs of bfloat16 anew for each use: a row in float32 would fill the registers.

    So that the compiler doesn't keep what it widened before, the number of bits, 16, is spelled in three ways.
    """
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row).to(tl.int32)
    logits_ptr += row * STRIDE
    PAIRS: tl.constexpr = COLUMNS // 2
    column, pair = tl.arange(0, COLUMNS), tl.arange(0, PAIRS)
    if target < 0:
        _leave_out(logits_ptr, loss_ptr + row, likelihood_ptr + row, WIDTH, COLUMNS)
    else:
        at_target = tl.load(logits_ptr + target).to(tl.float32)
        pairs_ptr = logits_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
        tiles = ()
        for first in tl.static_range(0, WIDTH, COLUMNS):
            pairs = tl.load(pairs_ptr + first // 2 + pair, first // 2 + pair < WIDTH // 2, 0)
            if first + COLUMNS > VOCABULARY:
                low = tl.where(first + 2 * pair < VOCABULARY, pairs & 0xFFFF, NO_LOGIT)
                high = tl.where(first + 2 * pair + 1 < VOCABULARY, pairs >> 16, NO_LOGIT)
                pairs = low | high << 16
            tiles = tiles + (pairs,)  # type: ignore[assignment]  # noqa: RUF005, Triton knows no star
        largest = tl.full((PAIRS,), float("-inf"), tl.float32)
        for tile in tl.static_range(len(tiles)):
            low, high = _widen(tiles[tile], 16)
            largest = tl.maximum(largest, tl.maximum(low, high))
        largest = tl.max(largest, 0)
        share, total = tl.zeros((PAIRS,), tl.float32), tl.zeros((PAIRS,), tl.float32)
        for tile in tl.static_range(len(tiles)):
            low, high = _widen(tiles[tile], half)
            share += _rough_share(low, largest) + _rough_share(high, largest)
            if (tile + 1) * COLUMNS > VOCABULARY:
                low = tl.where(tile * COLUMNS + 2 * pair < VOCABULARY, low, 0.0)
                high = tl.where(tile * COLUMNS + 2 * pair + 1 < VOCABULARY, high, 0.0)
            total += low + high
        log_sum = largest + tl.log(tl.sum(share, 0))
        uniform = smoothing / VOCABULARY
        for tile in tl.static_range(len(tiles)):
            low, high = _widen(tiles[tile], 32 - half)
            low, high = _rough_share(low, log_sum) - uniform, _rough_share(high, log_sum) - uniform
            gradient = tl.interleave(low.to(tl.bfloat16), high.to(tl.bfloat16))
            tl.store(logits_ptr + tile * COLUMNS + column, gradient, tile * COLUMNS + column < WIDTH)
        answers = (loss_ptr + row, likelihood_ptr + row, logits_ptr + target)
        _answer(answers, at_target, _rough_share(at_target, log_sum), log_sum, tl.sum(total, 0), smoothing, uniform)


@triton.jit
def _read_twice(  # type: ignore[no-untyped-def]
    logits_ptr,
    target_ptr,
    loss_ptr,
    likelihood_ptr,
    smoothing,
    STRIDE: tl.constexpr,
    VOCABULARY: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row).to(tl.int32)
    logits_ptr += row * STRIDE
    column = tl.arange(0, COLUMNS)
    if target < 0:
        _leave_out(logits_ptr, loss_ptr + row, likelihood_ptr + row, WIDTH, COLUMNS)
    else:
        at_target = tl.load(logits_ptr + target).to(tl.float32)
        largest = tl.full((), float("-inf"), tl.float32)
        share, total = tl.zeros((COLUMNS,), tl.float32), tl.zeros((COLUMNS,), tl.float32)
        for first in range(0, WIDTH, COLUMNS):
            logit = tl.load(logits_ptr + first + column, first + column < WIDTH, 0.0).to(tl.float32)
            total += tl.where(first + column < VOCABULARY, logit, 0.0)
            logit = tl.where(first + column < VOCABULARY, logit, float("-inf"))
            before, largest = largest, tl.maximum(largest, tl.max(logit, 0))
            share = share * _share(before, largest) + _share(logit, largest)
        whole = tl.sum(share, 0)
        uniform = smoothing / VOCABULARY
        for first in range(0, WIDTH, COLUMNS):
            logit = tl.load(logits_ptr + first + column, first + column < WIDTH, 0.0).to(tl.float32)
            logit = tl.where(first + column < VOCABULARY, logit, float("-inf"))
            tl.store(logits_ptr + first + column, _share(logit, largest) / whole - uniform, first + column < WIDTH)
        answers = (loss_ptr + row, likelihood_ptr + row, logits_ptr + target)
        share, log_sum = _share(at_target, largest) / whole, largest + tl.log(whole)
        _answer(answers, at_target, share, log_sum, tl.sum(total, 0), smoothing, uniform)


@triton.jit
def _widen(pairs, bits):  # type: ignore[no-untyped-def]
    """Convert two bfloat16 in one number to two float32."""
    return (pairs << bits).to(tl.float32, bitcast=True), (pairs & (-1 << bits)).to(tl.float32, bitcast=True)


@triton.jit
def _share(logit, of):  # type: ignore[no-untyped-def]
    """Compute exp(logit - of) from the difference: a product of each would be rounded as they are large."""
    return tl.exp2((logit - of) * LOG2_E)


@triton.jit
def _rough_share(logit, of):  # type: ignore[no-untyped-def]
    """Compute `_share` in one operation less, for logits that were rounded to 2^-8."""
    return tl.exp2(logit * LOG2_E - of * LOG2_E)


@triton.jit
def _leave_out(logits_ptr, loss_ptr, likelihood_ptr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write zeros for a row that doesn't count."""
    column = tl.arange(0, COLUMNS)
    for first in range(0, WIDTH, COLUMNS):
        tl.store(logits_ptr + first + column, tl.zeros((COLUMNS,), tl.float32), first + column < WIDTH)
    tl.store(loss_ptr, 0.0)
    tl.store(likelihood_ptr, 0.0)


@triton.jit
def _answer(pointers, at_target, share, log_sum, total, smoothing, uniform):  # type: ignore[no-untyped-def]
    """Write loss, likelihood, and the gradient at the target, over the one that was written there as for other ids."""
    loss_ptr, likelihood_ptr, gradient_ptr = pointers
    tl.store(loss_ptr, log_sum - (1.0 - smoothing) * at_target - uniform * total)
    tl.store(likelihood_ptr, log_sum - at_target)
    tl.debug_barrier()
    tl.store(gradient_ptr, share - (1.0 - smoothing + uniform))
