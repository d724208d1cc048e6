"""A matrix in float8: one pass finds its largest entry, one writes it scaled, as it is and transposed.

R: rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.ops.kernels.availability import num_multiprocessors

TILE = 16  # rows of the turned matrix begin at so many bytes


class Float8Blocks(NamedTuple):
    """Tuning of a launch: a program's tile, its warps; where entries are only read, how many at once, and programs."""

    rows: int = 64
    columns: int = 64
    warps: int = 4
    entries: int = 4096
    waves: int = 4


BLOCKS = Float8Blocks()


@triton.jit
def _largest_kernel(x_ptr, bits_ptr, num_entries, ENTRIES: tl.constexpr):  # type: ignore[no-untyped-def]
    found = tl.zeros((ENTRIES,), tl.int32)
    for first in tl.range(tl.program_id(0) * ENTRIES, num_entries, tl.num_programs(0) * ENTRIES, num_stages=2):
        at = first + tl.arange(0, ENTRIES)
        x = tl.load(x_ptr + at, at < num_entries, 0.0).to(tl.float32)
        found = tl.maximum(found, x.to(tl.int32, bitcast=True) & 0x7FFFFFFF)  # ordered as |x| is; NaN is above all
    tl.atomic_max(bits_ptr, tl.max(found, 0))


@triton.jit
def _narrow_kernel(  # type: ignore[no-untyped-def]
    x_ptr,
    bits_ptr,
    rows_ptr,
    turned_ptr,
    scale_ptr,
    num_rows,
    num_turned,
    width,
    LARGEST: tl.constexpr,
    SMALLEST: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    scale = tl.maximum(tl.load(bits_ptr).to(tl.float32, bitcast=True) / LARGEST, SMALLEST)
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(scale_ptr, scale)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    at = row[:, None] * width + column[None, :]
    x = tl.load(x_ptr + at, inside, 0.0).to(tl.float32) * (1.0 / scale)
    x = tl.where(x == x, tl.minimum(tl.maximum(x, -LARGEST), LARGEST), x)
    narrow = x.to(rows_ptr.dtype.element_ty)
    tl.store(rows_ptr + at, narrow, inside)
    turned_at = column.to(tl.int64)[:, None] * num_turned + row[None, :]
    tl.store(turned_ptr + turned_at, tl.trans(narrow), (column < width)[:, None] & (row < num_turned)[None, :])


def largest(x: Tensor, blocks: Float8Blocks = BLOCKS) -> Tensor:
    """Return the bits of the largest |x| in float32, [1]."""
    bits = torch.zeros(1, dtype=torch.int32, device=x.device)
    wanted = blocks.waves * num_multiprocessors(x.device)
    num_programs = max(1, min(triton.cdiv(x.numel(), blocks.entries), wanted))
    _largest_kernel[(num_programs,)](x, bits, x.numel(), ENTRIES=blocks.entries, num_warps=blocks.warps)
    return bits


def narrow(
    x_RD: Tensor, bits: Tensor, dtype: torch.dtype, smallest: float, blocks: Float8Blocks = BLOCKS
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x / scale as it is [R, D] and transposed [D, R'], R' the next multiple of 16 (zeros), and the scale."""
    num_rows, width = x_RD.shape
    num_turned = triton.cdiv(num_rows, TILE) * TILE
    rows_RD = torch.empty_like(x_RD, dtype=dtype)
    turned_DR = x_RD.new_empty(width, num_turned, dtype=dtype)
    scale = x_RD.new_empty((), dtype=torch.float32)
    _narrow_kernel[(triton.cdiv(num_turned, blocks.rows), triton.cdiv(width, blocks.columns))](
        x_RD,
        bits,
        rows_RD,
        turned_DR,
        scale,
        num_rows,
        num_turned,
        width,
        LARGEST=torch.finfo(dtype).max,
        SMALLEST=smallest,
        ROWS=blocks.rows,
        COLUMNS=blocks.columns,
        num_warps=blocks.warps,
    )
    return rows_RD, turned_DR, scale
