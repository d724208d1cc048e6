# mypy: disable-error-code="no-untyped-def"
"""Linear layers of few rows: a program has a few outputs of a few rows, and all of their weights at once.

If the rows are a norm that is not computed yet (`lazy_norm`), every program computes it for itself.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from saccade.ops.kernels.follow import follow
from saccade.ops.kernels.launch import launch_options
from saccade.ops.lazy_norm import LazyNorm, Rows, tensor_of

NUMBERS = 2048  # weights of a warp


class Tile(NamedTuple):
    """Tuning of a launch: rows and outputs of a program, and its warps."""

    rows: int
    outputs: int
    warps: int


def tile_for(num_rows: int, padded: int) -> Tile:
    """Choose the tile: programs of one warp for one row; several rows share the weights that are read."""
    rows = min(4, triton.next_power_of_2(num_rows))
    outputs = max(1 if rows == 1 else 4, NUMBERS // padded)
    return Tile(rows, outputs, max(1, min(16, outputs * padded // NUMBERS)))


def product(rows: Rows, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """Compute x Wᵀ + b, or its relu, [..., F] in the rows' dtype. F: outputs of the layer."""
    normed, x = rows if isinstance(rows, LazyNorm) else None, tensor_of(rows).contiguous()
    branch = None if normed is None or normed.branch is None else normed.branch.contiguous()
    (num_outputs, width), weight = weight.shape, weight.contiguous()
    num_rows, padded = x.numel() // width, max(32, triton.next_power_of_2(width))
    y = x.new_empty(*x.shape[:-1], num_outputs)
    tile = tile_for(num_rows, padded)
    _kernel[(triton.cdiv(num_outputs, tile.outputs), triton.cdiv(num_rows, tile.rows))](
        x,
        branch,
        None if branch is None or normed is None else normed.total,
        None if normed is None else normed.weight,
        None if normed is None else normed.bias,
        weight,
        bias,
        y,
        num_rows,
        0.0 if normed is None else normed.epsilon,
        NUM_OUTPUTS=num_outputs,
        WIDTH=width,
        PADDED=padded,
        ROWS=tile.rows,
        OUTPUTS=tile.outputs,
        ADDS=branch is not None,
        NORMS=normed is not None,
        BIASED=bias is not None,
        RELU=relu,
        num_warps=tile.warps,
        **launch_options(x.device),
    )
    return y


@triton.jit
def _kernel(
    x_ptr,
    branch_ptr,
    total_ptr,
    norm_weight_ptr,
    norm_bias_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    num_rows,
    epsilon,
    NUM_OUTPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ADDS: tl.constexpr,
    NORMS: tl.constexpr,
    BIASED: tl.constexpr,
    RELU: tl.constexpr,
    EARLY: tl.constexpr,
):
    output, column = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS), tl.arange(0, PADDED)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    is_column, is_output = column < WIDTH, output < NUM_OUTPUTS
    inside = (row < num_rows)[:, None] & is_column[None, :]
    at = row[:, None] * WIDTH + column[None, :]
    weight_at = output.to(tl.int64)[:, None] * WIDTH + column[None, :]
    weight = tl.load(weight_ptr + weight_at, is_output[:, None] & is_column[None, :], 0.0)
    if BIASED:
        bias = tl.load(bias_ptr + output, is_output, 0.0).to(tl.float32)
    if NORMS:
        norm_weight = tl.load(norm_weight_ptr + column, is_column, 0.0).to(tl.float32)
        norm_bias = tl.load(norm_bias_ptr + column, is_column, 0.0).to(tl.float32)
    follow(EARLY)
    dtype = y_ptr.dtype.element_ty
    x = tl.load(x_ptr + at, inside, 0.0).to(tl.float32)
    if ADDS:
        x += tl.load(branch_ptr + at, inside, 0.0).to(tl.float32)
        x = x.to(dtype).to(tl.float32)  # the norm is of what others will read
        tl.store(total_ptr + at, x, inside & (tl.program_id(0) == 0))
    if NORMS:
        x -= tl.sum(x, 1)[:, None] / WIDTH
        x = tl.where(is_column[None, :], x, 0.0)
        inverse = tl.rsqrt(tl.sum(x * x, 1) / WIDTH + epsilon)
        x = x * inverse[:, None] * norm_weight[None, :] + norm_bias[None, :]
        x = x.to(dtype).to(tl.float32)
    weight = weight.to(tl.float32)
    if ROWS == 1:  # noqa: SIM108
        y = tl.sum(x * weight, 1)[None, :]
    else:
        y = tl.sum(x[:, None, :] * weight[None, :, :], 2)
    if BIASED:
        y += bias[None, :]
    if RELU:
        y = tl.maximum(y, 0.0)
    y_at = row[:, None] * NUM_OUTPUTS + output[None, :]
    tl.store(y_ptr + y_at, y, (row < num_rows)[:, None] & is_output[None, :])
