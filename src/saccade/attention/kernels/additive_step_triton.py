# mypy: disable-error-code="no-untyped-def"
"""The kernels of `additive_step`: a program has a row of the batch, and goes over the width in blocks.

Memory bounds them: keys and values are read once each, forward and backward. The widths are constants of the compiled
kernel, so that it knows how rows are aligned.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 8192  # elements of keys or values that a program holds at a time
WARPS = 8


@triton.jit
def _tanh(x):
    return 1 - 2 / (1 + tl.exp(2 * x))


@triton.jit
def _block(start, row, real_S, first, width: tl.constexpr, BLOCK: tl.constexpr):
    """Columns `first`.. of the real rows, [S, BLOCK], in float32; zeros elsewhere."""
    column = first + tl.arange(0, BLOCK)
    is_there = real_S[:, None] & (column < width)[None, :]
    return tl.load(start + row[:, None] * width + column[None, :], is_there, 0.0).to(tl.float32)


@triton.jit
def _vector(start, first, width: tl.constexpr, BLOCK: tl.constexpr):
    column = first + tl.arange(0, BLOCK)
    return tl.load(start + column, column < width, 0.0).to(tl.float32)


@triton.jit
def _forward(
    query,
    memory,
    v,
    value,
    length,
    context,
    weight,
    num_keys,
    width: tl.constexpr,
    value_width: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, KEYS)
    row = b * num_keys + s
    is_real = (s < num_keys) & (s < tl.load(length + b))
    score = tl.zeros([KEYS], tl.float32)
    for first in range(0, width, BLOCK):
        q = _vector(query + b * width, first, width, BLOCK)
        hidden = _tanh(_block(memory, row, is_real, first, width, BLOCK) + q[None, :])
        score += tl.sum(hidden * _vector(v, first, width, BLOCK)[None, :], 1)
    score = tl.where(is_real, score, float("-inf"))
    highest = tl.max(score, 0)
    power = tl.exp(score - tl.where(highest == float("-inf"), 0.0, highest))
    total = tl.sum(power, 0)
    share = power / tl.where(total == 0.0, 1.0, total)  # no key at all: zeros
    tl.store(weight + row, share, s < num_keys)
    for first in range(0, value_width, BLOCK):
        summed = tl.sum(_block(value, row, is_real, first, value_width, BLOCK) * share[:, None], 0)
        column = first + tl.arange(0, BLOCK)
        tl.store(context + b * value_width + column, summed.to(context.dtype.element_ty), column < value_width)


@triton.jit
def _backward(
    grad,
    query,
    memory,
    v,
    value,
    weight,
    grad_query,
    num_keys,
    width: tl.constexpr,
    value_width: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, KEYS)
    row = b * num_keys + s
    share = tl.load(weight + row, s < num_keys, 0.0)
    is_real = share > 0  # what weighs nothing moves nothing
    grad_share = tl.zeros([KEYS], tl.float32)
    for first in range(0, value_width, BLOCK):
        g = _vector(grad + b * value_width, first, value_width, BLOCK)
        grad_share += tl.sum(_block(value, row, is_real, first, value_width, BLOCK) * g[None, :], 1)
    grad_score = share * (grad_share - tl.sum(share * grad_share, 0))
    for first in range(0, width, BLOCK):
        q = _vector(query + b * width, first, width, BLOCK)
        hidden = _tanh(_block(memory, row, is_real, first, width, BLOCK) + q[None, :])
        summed = tl.sum((1 - hidden * hidden) * grad_score[:, None], 0) * _vector(v, first, width, BLOCK)
        column = first + tl.arange(0, BLOCK)
        tl.store(grad_query + b * width + column, summed.to(grad_query.dtype.element_ty), column < width)


def forward(
    query_BA: Tensor, memory_BSA: Tensor, v_A: Tensor, value_BSD: Tensor, length_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Contexts in the values' dtype, and weights in float32."""
    num_rows, num_keys, width = memory_BSA.shape
    context_BD = value_BSD.new_empty(num_rows, value_BSD.shape[-1])
    weight_BS = torch.empty(num_rows, num_keys, dtype=torch.float32, device=query_BA.device)
    tensors = [x.contiguous() for x in (query_BA, memory_BSA, v_A, value_BSD, length_B)]
    sizes = (num_keys, width, value_BSD.shape[-1])
    _forward[(num_rows,)](*tensors, context_BD, weight_BS, *sizes, **blocks(num_keys), num_warps=WARPS)
    return context_BD, weight_BS


def backward(
    grad_BD: Tensor, query_BA: Tensor, memory_BSA: Tensor, v_A: Tensor, value_BSD: Tensor, weight_BS: Tensor
) -> Tensor:
    """The query's gradient, in its dtype."""
    num_rows, num_keys, width = memory_BSA.shape
    grad_BA = torch.empty_like(query_BA, memory_format=torch.contiguous_format)
    tensors = [x.contiguous() for x in (grad_BD, query_BA, memory_BSA, v_A, value_BSD, weight_BS)]
    sizes = (num_keys, width, value_BSD.shape[-1])
    _backward[(num_rows,)](*tensors, grad_BA, *sizes, **blocks(num_keys), num_warps=WARPS)
    return grad_BA


def blocks(num_keys: int) -> dict[str, int]:
    """All keys, and as much of the width as makes a tile."""
    keys = max(16, triton.next_power_of_2(num_keys))
    return {"KEYS": keys, "BLOCK": max(16, TILE // keys)}
