"""norm(x + dropout(branch)), and each part of it alone, in one pass over memory; its gradient in another.

With u = (s - mean s) / deviation and y = w u + b (Ba 2016, section 3), the gradient for s is
(g - mean g - u mean(g u)) / deviation, g = w dy. After a sum, u = (y - b) / w is read off y alone, except in columns
whose b is large beside w, where y in half precision says too little of u: those few are made again from x and the
branch. Neither the sum (unless it is wanted) nor a mask is stored; what was dropped is drawn again from the seed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.ops.kernels.availability import num_multiprocessors
from saccade.ops.kernels.columns import sum_rows
from saccade.ops.kernels.follow import follow
from saccade.ops.kernels.launch import launch_options
from saccade.ops.residual import NormInputs, ResidualInputs

CLEAR = tl.constexpr(2.0)  # up to this |b / w|, u read off y is about as exact as a sum rounded to y's dtype
LEVELS = 1 << 16  # a share is rounded to a 65,536th: one call of the generator decides for eight numbers


class ResidualBlocks(NamedTuple):
    """Tuning of a launch: rows a program holds at once, its warps, programs for each multiprocessor, loads ahead."""

    rows: int
    warps: int
    waves: int = 1
    stages: int = 1


def forward_blocks(width: int) -> ResidualBlocks:
    """Cut the forward pass: sixteen numbers a thread, and few warps in a row's sums."""
    return _blocks(width, 1024 if width <= 512 else 2048, 512)


def backward_blocks(width: int) -> ResidualBlocks:
    """Cut the backward pass: eight numbers of long rows a thread, since it holds five such; a program has many rows."""
    if 128 <= width <= 512:
        return _blocks(width, 2048, 512, waves=2, stages=3)
    return _blocks(width, 1024, 256, waves=4, stages=3 if width <= 2048 else 2)


def _blocks(width: int, numbers: int, for_each_warp: int, waves: int = 1, stages: int = 1) -> ResidualBlocks:
    padded = triton.next_power_of_2(width)
    warps = min(16, max(numbers, padded) // for_each_warp)
    return ResidualBlocks(max(1, numbers // padded), warps, waves, stages)


@triton.jit
def draw_row_mask(seed, row, threshold, ROWS: tl.constexpr, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Draw which numbers of the rows stay."""
    return draw_mask(seed, row[:, None] * (PADDED // 8) + tl.arange(0, PADDED // 8)[None, :], threshold, ROWS, PADDED)


@triton.jit
def draw_mask(seed, eight, threshold, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Draw which numbers stay, for eights of them [ROWS, COLUMNS // 8]: sixteen bits for each number."""
    a, b, c, d = tl.randint4x(seed, eight, n_rounds=7)  # seven rounds pass BigCrush (Salmon 2011, table 2)
    words = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (ROWS, COLUMNS // 2)).to(tl.uint32, bitcast=True)
    return tl.reshape(tl.join(words & 0xFFFF, words >> 16), (ROWS, COLUMNS)) >= threshold


@triton.jit
def _in_eights(flag, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Flag all eight numbers that are loaded together if any of them is flagged."""
    of_eight = tl.max(tl.reshape(flag.to(tl.int32), (PADDED // 8, 8)), 1)
    return tl.reshape(tl.broadcast_to(of_eight[:, None], (PADDED // 8, 8)), (PADDED,)) > 0


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    branch_ptr,
    x_ptr,
    weight_ptr,
    bias_ptr,
    seed_ptr,
    y_ptr,
    mean_ptr,
    inverse_ptr,
    total_ptr,
    num_rows,
    threshold,
    factor,
    epsilon,
    WIDTH: tl.constexpr,
    ADDS: tl.constexpr,
    DROPS: tl.constexpr,
    NORMS: tl.constexpr,
    KEEPS: tl.constexpr,
    ROWS: tl.constexpr,
    PADDED: tl.constexpr,
    EARLY: tl.constexpr,
):
    follow(EARLY)
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PADDED)
    at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]
    y = tl.load(branch_ptr + at, inside, 0.0).to(tl.float32)
    if DROPS:
        y = tl.where(draw_row_mask(tl.load(seed_ptr), row, threshold, ROWS, PADDED), y * factor, 0.0)
    if ADDS:
        y += tl.load(x_ptr + at, inside, 0.0).to(tl.float32)
    if KEEPS:
        y = y.to(total_ptr.dtype.element_ty).to(tl.float32)  # the norm is of what others will read
        tl.store(total_ptr + at, y, inside)
    if NORMS:
        mean = tl.sum(y, 1) / WIDTH
        y = tl.where((column < WIDTH)[None, :], y - mean[:, None], 0.0)
        inverse = tl.rsqrt(tl.sum(y * y, 1) / WIDTH + epsilon)
        weight = tl.load(weight_ptr + column, column < WIDTH, 0.0).to(tl.float32)
        bias = tl.load(bias_ptr + column, column < WIDTH, 0.0).to(tl.float32)
        y = y * inverse[:, None] * weight[None, :] + bias[None, :]
        tl.store(mean_ptr + row, mean, row < num_rows)
        tl.store(inverse_ptr + row, inverse, row < num_rows)
    tl.store(y_ptr + at, y, inside)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    grad_ptr,
    grad_total_ptr,
    y_ptr,
    branch_ptr,
    x_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    inverse_ptr,
    seed_ptr,
    grad_sum_ptr,
    grad_branch_ptr,
    partial_ptr,
    num_rows,
    threshold,
    factor,
    WIDTH: tl.constexpr,
    ADDS: tl.constexpr,
    DROPS: tl.constexpr,
    KEPT: tl.constexpr,
    SUMS: tl.constexpr,
    ROWS: tl.constexpr,
    PADDED: tl.constexpr,
    STAGES: tl.constexpr,
):
    column = tl.arange(0, PADDED)
    weight = tl.load(weight_ptr + column, column < WIDTH, 0.0).to(tl.float32)
    bias = tl.load(bias_ptr + column, column < WIDTH, 0.0).to(tl.float32)
    unclear = _in_eights(tl.abs(bias) >= CLEAR * tl.abs(weight), PADDED)
    unweight = 1.0 / tl.where(unclear, 1.0, weight)
    seed = tl.load(seed_ptr) if DROPS else 0
    grad_weight = tl.zeros((ROWS, PADDED), tl.float32)
    grad_bias = tl.zeros((ROWS, PADDED), tl.float32)
    branch_sum = tl.zeros((ROWS, PADDED), tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
        inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]
        grad = tl.load(grad_ptr + at, inside, 0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, row < num_rows, 0.0)
        inverse = tl.load(inverse_ptr + row, row < num_rows, 0.0)
        again = tl.max_constancy(inside & unclear[None, :], [1, 8]) if ADDS else inside
        total = tl.load(branch_ptr + at, again, 0.0).to(tl.float32)
        if DROPS:
            kept = draw_row_mask(seed, row, threshold, ROWS, PADDED)
            if not KEPT:
                total = tl.where(kept, total * factor, 0.0)
        if ADDS:
            total += tl.load(x_ptr + at, again, 0.0).to(tl.float32)
        unit = (total - mean[:, None]) * inverse[:, None]
        if ADDS:
            y = tl.load(y_ptr + at, inside, 0.0).to(tl.float32)
            unit = tl.where(unclear[None, :], unit, (y - bias[None, :]) * unweight[None, :])
        unit = tl.where(inside, unit, 0.0)
        grad_weight += grad * unit
        grad_bias += grad
        grad *= weight[None, :]
        along = tl.sum(grad * unit, 1) / WIDTH
        grad = (grad - tl.sum(grad, 1)[:, None] / WIDTH - unit * along[:, None]) * inverse[:, None]
        if KEPT:
            grad += tl.load(grad_total_ptr + at, inside, 0.0).to(tl.float32)
        tl.store(grad_sum_ptr + at, grad, inside)
        if DROPS:
            grad = tl.where(kept, grad * factor, 0.0)
            tl.store(grad_branch_ptr + at, grad, inside)
        if SUMS:
            branch_sum += grad
    partial_ptr += tl.program_id(0) * (2 + SUMS) * WIDTH
    tl.store(partial_ptr + column, tl.sum(grad_weight, 0), column < WIDTH)
    tl.store(partial_ptr + WIDTH + column, tl.sum(grad_bias, 0), column < WIDTH)
    if SUMS:
        tl.store(partial_ptr + 2 * WIDTH + column, tl.sum(branch_sum, 0), column < WIDTH)


def dropout_threshold(share: float) -> tuple[int, float]:
    """Return the level of 65,536 below which a number is dropped, and the factor of the others."""
    threshold = round(share * LEVELS)
    return threshold, LEVELS / (LEVELS - threshold)


def forward(given: ResidualInputs, blocks: ResidualBlocks | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Compute what the operator returns, in x's dtype; the moments are [2, rows] with a weight, else empty."""
    branch, x, weight, bias, seed, share, epsilon, keeps = given
    width = branch.shape[-1]
    blocks = blocks or forward_blocks(width)
    branch, x = branch.contiguous(), x if x is None else x.contiguous()
    y = torch.empty_like(branch if x is None else x)
    num_rows = y.numel() // max(1, width)
    moments = torch.empty(2, 0 if weight is None else num_rows, dtype=torch.float32, device=y.device)
    total = y.new_empty(y.shape if keeps else 0)
    if y.numel():
        _forward_kernel[(triton.cdiv(num_rows, blocks.rows),)](
            branch,
            x,
            weight,
            bias,
            seed,
            y,
            *moments,
            total,
            num_rows,
            *dropout_threshold(share),
            epsilon,
            WIDTH=width,
            ADDS=x is not None,
            DROPS=seed is not None,
            NORMS=weight is not None,
            KEEPS=keeps,
            ROWS=blocks.rows,
            PADDED=max(8, triton.next_power_of_2(width)),
            num_warps=blocks.warps,
            **launch_options(y.device),
        )
    return y, moments, total


def backward(
    grad: Tensor, grad_total: Tensor | None, given: NormInputs, sums: bool, blocks: ResidualBlocks | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute what the operator's gradient returns."""
    y, moments, branch, x, weight, bias, seed, share = given
    width, grad = grad.shape[-1], grad.contiguous()
    grad_total = grad_total if grad_total is None else grad_total.contiguous()
    blocks = blocks or backward_blocks(width)
    branch, x, num_rows = branch.contiguous(), x if x is None else x.contiguous(), moments.shape[1]
    grad_sum, grad_branch = torch.empty_like(grad), branch.new_empty(0 if seed is None else branch.shape)
    num_programs = max(1, min(triton.cdiv(num_rows, blocks.rows), blocks.waves * num_multiprocessors(grad.device)))
    partial = torch.empty(num_programs, 2 + sums, width, dtype=torch.float32, device=grad.device)
    _backward_kernel[(num_programs,)](
        grad,
        grad_total,
        y,
        branch,
        x,
        weight,
        bias,
        *moments,
        seed,
        grad_sum,
        grad_branch,
        partial,
        num_rows,
        *dropout_threshold(share),
        WIDTH=width,
        ADDS=x is not None,
        DROPS=seed is not None,
        KEPT=grad_total is not None,
        SUMS=sums,
        ROWS=blocks.rows,
        PADDED=max(8, triton.next_power_of_2(width)),
        STAGES=blocks.stages,
        num_warps=blocks.warps,
    )
    return grad_sum, grad_branch, sum_rows(partial.view(num_programs, -1)).view(-1, width)
