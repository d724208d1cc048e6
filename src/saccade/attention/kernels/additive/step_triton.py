# mypy: disable-error-code="no-untyped-def"
"""The kernels of `additive_step`: a program has a row of the batch, and goes over its keys, a few at a time.

Memory bounds them: forward and backward each read the keys and the values once, together. The softmax is corrected as
larger scores come; sum_s a_s da_s, which its gradient asks for, is the context times its gradient. The widths are
constants of the compiled kernel, so that it knows how rows are aligned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.additive.step import AdditiveStepInputs, AdditiveStepOutputs


class StepSizes(NamedTuple):
    """Compile-time constants of the step kernel."""

    width: int
    value_width: int
    keys: int  # that a program has at a time
    block: int  # the power of two that holds the width
    value_block: int
    stages: int
    is_fast: bool  # tanh as the device's own instruction has it


class StepBlocks(NamedTuple):
    """Tuning of a launch: elements of keys that a program has at a time, its warps, and loads ahead."""

    tile: int
    warps: int
    stages: int


FEW = 264  # rows up to here are two for a multiprocessor at most
MOST_KEYS = 16  # at a time
TILES = {True: StepBlocks(8192, 4, 3), False: StepBlocks(8192, 4, 2)}  # few rows; many


@triton.jit
def _tanh(x, FAST: tl.constexpr):
    """Compute tanh to the last bits; or by the device's own instruction, to 2^-11, which half precision doesn't see."""
    if FAST:
        y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = 1 - 2 / (1 + tl.exp(2 * x))
    return y


@triton.jit
def _vector(start, column, width: tl.constexpr):
    return tl.load(start + column, column < width, 0.0).to(tl.float32)


@triton.jit
def _rows(start, row, is_real, column, width: tl.constexpr):
    """Read real rows, [KEYS, BLOCK]; zeros elsewhere."""
    is_there = is_real[:, None] & (column < width)[None, :]
    return tl.load(start + row[:, None] * width + column[None, :], is_there, 0.0).to(tl.float32)


@triton.jit
def _forward(query, memory, v, value, length, context, score, log_sum, num_keys, SIZES: tl.constexpr):
    VALUE_BLOCK: tl.constexpr = SIZES.value_block
    b = tl.program_id(0).to(tl.int64)
    column, value_column = tl.arange(0, SIZES.block), tl.arange(0, VALUE_BLOCK)
    q, v_A = _vector(query + b * SIZES.width, column, SIZES.width), _vector(v, column, SIZES.width)
    real = tl.minimum(tl.load(length + b), num_keys).to(tl.int32)
    summed = tl.zeros([VALUE_BLOCK], tl.float32)
    highest, total = float("-inf"), 0.0
    for first in tl.range(0, real, SIZES.keys, num_stages=SIZES.stages):
        s = first + tl.arange(0, SIZES.keys)
        row = b * num_keys + s
        key = _rows(memory, row, s < real, column, SIZES.width)
        found = _rows(value, row, s < real, value_column, SIZES.value_width)
        e = tl.sum(_tanh(key + q[None, :], SIZES.is_fast) * v_A[None, :], 1)
        tl.store(score + row, e, s < real)
        e = tl.where(s < real, e, float("-inf"))
        higher = tl.maximum(highest, tl.max(e, 0))
        power, kept = tl.exp(e - higher), tl.exp(highest - higher)
        summed = summed * kept + tl.sum(found * power[:, None], 0)
        total = total * kept + tl.sum(power, 0)
        highest = higher
    total = tl.where(real > 0, total, 1.0)  # no key at all: zeros
    tl.store(log_sum + b, tl.where(real > 0, highest, 0.0) + tl.log(total))
    out = context + b * SIZES.value_width + value_column
    tl.store(out, (summed / total).to(context.dtype.element_ty), value_column < SIZES.value_width)


@triton.jit
def _backward(
    grad, query, memory, v, value, length, context, score, log_sum, grad_query, num_keys, SIZES: tl.constexpr
):
    BLOCK: tl.constexpr = SIZES.block
    b = tl.program_id(0).to(tl.int64)
    column, value_column = tl.arange(0, BLOCK), tl.arange(0, SIZES.value_block)
    q = _vector(query + b * SIZES.width, column, SIZES.width)
    g = _vector(grad + b * SIZES.value_width, value_column, SIZES.value_width)
    mean = tl.sum(g * _vector(context + b * SIZES.value_width, value_column, SIZES.value_width), 0)
    real, peak = tl.minimum(tl.load(length + b), num_keys).to(tl.int32), tl.load(log_sum + b)
    summed = tl.zeros([BLOCK], tl.float32)
    for first in tl.range(0, real, SIZES.keys, num_stages=SIZES.stages):
        s = first + tl.arange(0, SIZES.keys)
        row = b * num_keys + s
        key = _rows(memory, row, s < real, column, SIZES.width)
        found = _rows(value, row, s < real, value_column, SIZES.value_width)
        share = tl.exp(tl.load(score + row, s < real, float("-inf")) - peak)
        grad_score = share * (tl.sum(found * g[None, :], 1) - mean)
        hidden = _tanh(key + q[None, :], SIZES.is_fast)
        summed += tl.sum((1 - hidden * hidden) * grad_score[:, None], 0)
    summed *= tl.where(real > 1, _vector(v, column, SIZES.width), 0.0)  # of a single key only rounding is left
    tl.store(grad_query + b * SIZES.width + column, summed.to(grad_query.dtype.element_ty), column < SIZES.width)


def forward(given: AdditiveStepInputs) -> AdditiveStepOutputs:
    """Compute contexts, scores (those behind a row's length are not written) and log-sums."""
    memory, value = given.memory_BSA, given.value_BSD
    num_rows, num_keys, _ = memory.shape
    context_BD = value.new_empty(num_rows, value.shape[-1])
    score_BS = torch.empty(num_rows, num_keys, dtype=torch.float32, device=memory.device)
    made = AdditiveStepOutputs(context_BD, score_BS, torch.empty_like(score_BS[:, 0]))
    tensors = [x.contiguous() for x in given]
    _forward[(num_rows,)](*tensors, *made, num_keys, **constants(memory, value))
    return made


def backward(grad_BD: Tensor, given: AdditiveStepInputs, made: AdditiveStepOutputs) -> Tensor:
    """Compute the query's gradient, in its dtype."""
    grad_BA = torch.empty_like(given.query_BA, memory_format=torch.contiguous_format)
    tensors = [x.contiguous() for x in (grad_BD, *given)]
    num_keys, sizes = given.memory_BSA.shape[1], constants(given.memory_BSA, given.value_BSD)
    _backward[(len(grad_BD),)](*tensors, *made, grad_BA, num_keys, **sizes)
    return grad_BA


def constants(memory_BSA: Tensor, value_BSD: Tensor) -> dict[str, Any]:
    """Return what the kernels are compiled for: both widths whole, and as many keys as make a tile."""
    width, value_width = memory_BSA.shape[-1], value_BSD.shape[-1]
    tile, warps, stages = TILES[len(memory_BSA) <= FEW]
    block, value_block = (max(16, triton.next_power_of_2(each)) for each in (width, value_width))
    keys = min(MOST_KEYS, triton.next_power_of_2(memory_BSA.shape[1]), tile // max(block, value_block))
    is_fast = memory_BSA.is_cuda and memory_BSA.dtype != torch.float32
    sizes = StepSizes(width, value_width, max(1, keys), block, value_block, stages, is_fast)
    return {"SIZES": sizes, "num_warps": warps}
