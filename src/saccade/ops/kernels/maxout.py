# mypy: disable-error-code="no-untyped-def"
"""The larger of each two neighbours; a gradient goes to it, and is halved where both are equal."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # pairs of a program
WARPS = 4


@triton.jit
def _pairs(x, place, num_pairs, BLOCK: tl.constexpr):
    both = place * (2 * BLOCK) + tl.arange(0, 2 * BLOCK)
    numbers = tl.load(x + both, both < 2 * num_pairs, 0.0).to(tl.float32)
    return tl.split(tl.reshape(numbers, (BLOCK, 2)))


@triton.jit
def _forward_kernel(x, y, num_pairs, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    first, second = _pairs(x, place, num_pairs, BLOCK)
    pair = place * BLOCK + tl.arange(0, BLOCK)
    larger = tl.maximum(first, second, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + pair, larger.to(y.dtype.element_ty), pair < num_pairs)


@triton.jit
def _backward_kernel(grad, x, grad_x, num_pairs, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    first, second = _pairs(x, place, num_pairs, BLOCK)
    pair = place * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(grad + pair, pair < num_pairs, 0.0).to(tl.float32)
    share = tl.where(first > second, 1.0, tl.where(first == second, 0.5, 0.0))
    both = place * (2 * BLOCK) + tl.arange(0, 2 * BLOCK)
    grads = tl.reshape(tl.join(g * share, g * (1 - share)), (2 * BLOCK,))
    tl.store(grad_x + both, grads.to(grad_x.dtype.element_ty), both < 2 * num_pairs)


def forward(x: Tensor) -> Tensor:
    """Take the larger of each two neighbours, [..., 2 D] to [..., D]."""
    y = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
    if y.numel():
        _forward_kernel[(triton.cdiv(y.numel(), BLOCK),)](x.contiguous(), y, y.numel(), BLOCK=BLOCK, num_warps=WARPS)
    return y


def backward(grad: Tensor, x: Tensor) -> Tensor:
    """Compute the gradient for x, [..., 2 D]."""
    grad_x, count = torch.empty_like(x, memory_format=torch.contiguous_format), grad.numel()
    if count:
        _backward_kernel[(triton.cdiv(count, BLOCK),)](
            grad.contiguous(), x.contiguous(), grad_x, count, BLOCK=BLOCK, num_warps=WARPS
        )
    return grad_x
