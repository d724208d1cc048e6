"""Weights one below the other, and their biases, in another dtype: one kernel for a layer's, or for a whole model's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

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


def join_narrow(
    weights: Sequence[Tensor], biases: Sequence[Tensor], dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """Copy weights into one matrix and biases into one vector (None if there are none), in `dtype`."""
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


@triton.jit
def _many_kernel(address_ptr, piece_ptr, first_ptr, EVEN: tl.constexpr, TARGET: tl.constexpr, NUMBERS: tl.constexpr):  # type: ignore[no-untyped-def]
    piece, first = tl.load(piece_ptr + tl.program_id(0)), tl.load(first_ptr + tl.program_id(0))
    source = tl.load(address_ptr + 3 * piece).to(tl.pointer_type(tl.float32))
    target = tl.load(address_ptr + 3 * piece + 1).to(tl.pointer_type(TARGET))
    size = tl.load(address_ptr + 3 * piece + 2)
    if EVEN:
        source, target, size = tl.multiple_of(source, 16), tl.multiple_of(target, 16), tl.multiple_of(size, 16)
    at = tl.multiple_of(first, NUMBERS) + tl.arange(0, NUMBERS)
    tl.store(target + at, tl.load(source + at, at < size), at < size)


@final
class Copy:
    """Many contiguous float32 tensors into as many others, of one dtype: one kernel, however often."""

    def __init__(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.pairs = [*pairs]  # which must stay where they are
        device, sizes = pairs[0][0].device, [source.numel() for source, _ in pairs]
        table = [(source.data_ptr(), to.data_ptr(), size) for (source, to), size in zip(pairs, sizes, strict=True)]
        places = [(piece, first) for piece, size in enumerate(sizes) for first in range(0, size, NUMBERS)]
        self.piece, self.first = torch.tensor(places, dtype=torch.int32).T.contiguous().to(device)
        self.table = torch.tensor(table, dtype=torch.int64).to(device)
        self.is_even = all(number % 16 == 0 for row in table for number in row)

    def __call__(self) -> None:
        target = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[self.pairs[0][1].dtype]
        options = {"EVEN": self.is_even, "TARGET": target, "NUMBERS": NUMBERS, "num_warps": WARPS}
        _many_kernel[(len(self.piece),)](self.table, self.piece, self.first, **options)
