"""Weights one below the other, and their biases, in another dtype: one kernel for them all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

NUMBERS, WARPS = 2048, 4  # a program's


@triton.jit
def _copy(source_ptr, target_ptr, first, size, NUMBERS: tl.constexpr):  # type: ignore[no-untyped-def]
    at = first + tl.arange(0, NUMBERS)
    tl.store(target_ptr + at, tl.load(source_ptr + at, at < size), at < size)


@triton.jit
def _narrow_kernel(  # type: ignore[no-untyped-def]
    weight_ptrs,
    bias_ptrs,
    narrow_ptr,
    narrow_bias_ptr,
    heights,
    WIDTH: tl.constexpr,
    BIASED: tl.constexpr,
    NUMBERS: tl.constexpr,
):
    first, above = tl.program_id(0) * NUMBERS, 0
    for part in tl.static_range(len(weight_ptrs)):
        if tl.program_id(1) == part:
            _copy(weight_ptrs[part], narrow_ptr + above * WIDTH, first, heights[part] * WIDTH, NUMBERS)
            if BIASED:
                _copy(bias_ptrs[part], narrow_bias_ptr + above, first, heights[part], NUMBERS)
        above += heights[part]


def narrowed(weights: Sequence[Tensor], biases: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """All of them in one matrix and one vector (None if there are no biases)."""
    heights, width = tuple(len(weight) for weight in weights), weights[0].shape[1]
    weight = weights[0].new_empty(sum(heights), width, dtype=dtype)
    bias = weight.new_empty(sum(heights)) if biases else None
    sources = tuple(part.contiguous() for part in weights)
    _narrow_kernel[(triton.cdiv(max(heights) * width, NUMBERS), len(weights))](
        sources,
        tuple(biases) or sources,
        weight,
        bias,
        heights,
        WIDTH=width,
        BIASED=bias is not None,
        NUMBERS=NUMBERS,
        num_warps=WARPS,
    )
    return weight, bias
