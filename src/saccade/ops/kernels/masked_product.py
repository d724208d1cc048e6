"""The gradient that reaches a relu, in the kernel of the product before it: masked and summed as it is written.

Copies of tiles by the tensor memory accelerator leave threads their registers for sums, so it is for Hopper and later.

R: rows. F: width of the relu. P: partial sums.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from saccade.ops.kernels.availability import is_hopper
from saccade.ops.kernels.columns import mask_gradient, sum_rows

ALIGNMENT = 16  # bytes, of what is copied and of each of its rows


class ProductBlocks(NamedTuple):
    """Tuning of a launch: a program's tile, terms of its sums at a time, tiles below each other at once, its warps."""

    rows: int
    columns: int
    step: int
    group: int
    warps: int
    stages: int


BLOCKS = ProductBlocks(rows=128, columns=128, step=64, group=8, warps=4, stages=2)
WIDE = BLOCKS._replace(group=1)  # a long row has tiles enough for many multiprocessors, which then write side by side


@triton.jit
def _masked_product_kernel(  # type: ignore[no-untyped-def]
    grad,
    weight,
    hidden,
    masked,
    sum_ptr,
    num_rows,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    GROUP: tl.constexpr,
):
    num_tiles: tl.constexpr = GROUP * triton.cdiv(WIDTH, COLUMNS)  # of a group
    group, tile = tl.program_id(0) // num_tiles, tl.program_id(0) % num_tiles
    height = tl.minimum(tl.cdiv(num_rows, ROWS) - group * GROUP, GROUP)
    slot = group * GROUP + tile % height
    row, column = slot * ROWS, tile // height * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, DEPTH, STEP):  # what lies outside of a matrix is read as zero, and not written
        total = tl.dot(grad.load([row, first]), weight.load([first, column]), total)
    total = tl.where(hidden.load([row, column]) > 0.0, total, 0.0)
    masked.store([row, column], total.to(masked.dtype))
    at = column + tl.arange(0, COLUMNS)
    tl.store(sum_ptr + slot * WIDTH + at, tl.sum(total, 0), at < WIDTH)


def masked_product(grad_RD: Tensor, weight_DF: Tensor, hidden_RF: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the gradient's product [R, F] where hidden = relu(.) is not zero, and its float32 sum over rows [F]."""
    if not all(_is_copied(x) for x in (grad_RD, weight_DF, hidden_RF)):
        return mask_gradient(grad_RD @ weight_DF, hidden_RF)
    return launch(grad_RD, weight_DF, hidden_RF, WIDE if hidden_RF.shape[1] > 2048 else BLOCKS)


def _is_copied(x: Tensor) -> bool:
    """Return True if the tensor memory accelerator can copy tiles of x. (Sums of float32 are exact elsewhere.)"""
    is_even = x.data_ptr() % ALIGNMENT == x.shape[-1] * x.itemsize % ALIGNMENT == 0
    return is_even and x.numel() > 0 and x.is_contiguous() and x.itemsize == 2 and is_hopper(x.device)


def launch(
    grad_RD: Tensor, weight_DF: Tensor, hidden_RF: Tensor, blocks: ProductBlocks = BLOCKS
) -> tuple[Tensor, Tensor]:
    """Compute the product by the kernel."""
    (num_rows, depth), width = grad_RD.shape, weight_DF.shape[1]
    num_slots, tile = triton.cdiv(num_rows, blocks.rows), [blocks.rows, blocks.columns]
    masked_RF = torch.empty_like(hidden_RF)
    sum_PF = torch.empty(num_slots, width, dtype=torch.float32, device=hidden_RF.device)
    _masked_product_kernel[(num_slots * triton.cdiv(width, blocks.columns),)](
        TensorDescriptor.from_tensor(grad_RD, [blocks.rows, blocks.step]),
        TensorDescriptor.from_tensor(weight_DF, [blocks.step, blocks.columns]),
        TensorDescriptor.from_tensor(hidden_RF, tile),
        TensorDescriptor.from_tensor(masked_RF, tile),
        sum_PF,
        num_rows,
        DEPTH=depth,
        WIDTH=width,
        ROWS=blocks.rows,
        COLUMNS=blocks.columns,
        STEP=blocks.step,
        GROUP=blocks.group,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
    )
    return masked_RF, sum_rows(sum_PF)
