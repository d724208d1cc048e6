"""Sums over rows in one pass over memory: of a gradient (for the bias), or of one that a relu masks as well.

R: rows. F: columns. P: programs, each with a partial sum.

Each program sums some rows of a strip of columns, then a few programs sum what those found: always in the same order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.ops.kernels.availability import num_multiprocessors


class ColumnBlocks(NamedTuple):
    """Tuning of a launch: a program's tile, its warps, programs for each multiprocessor, loads ahead."""

    rows: int
    columns: int
    warps: int
    waves: int = 4
    stages: int = 1


SUMS = ColumnBlocks(rows=32, columns=128, warps=4)
MASKED_SUMS = ColumnBlocks(rows=16, columns=256, warps=8)
TOTALS = ColumnBlocks(rows=128, columns=16, warps=4)


@triton.jit
def _columns_kernel(  # type: ignore[no-untyped-def]
    grad_ptr,
    hidden_ptr,
    masked_ptr,
    sum_ptr,
    num_rows,
    WIDTH: tl.constexpr,
    MASKS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in tl.range(tl.program_id(1) * ROWS, num_rows, tl.num_programs(1) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
        inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]
        grad = tl.load(grad_ptr + at, inside, 0.0)
        if MASKS:
            grad = tl.where(tl.load(hidden_ptr + at, inside, 0.0) > 0.0, grad, 0.0)
            tl.store(masked_ptr + at, grad, inside)
        total += grad.to(tl.float32)
    tl.store(sum_ptr + tl.program_id(1) * WIDTH + column, tl.sum(total, 0), column < WIDTH)


def column_sums(x_RF: Tensor, blocks: ColumnBlocks = SUMS) -> Tensor:
    """Sum over rows in float32, [F]."""
    return sum_rows(_partial_sums(x_RF, None, None, blocks))


def mask_gradient(grad_RF: Tensor, hidden_RF: Tensor, blocks: ColumnBlocks = MASKED_SUMS) -> tuple[Tensor, Tensor]:
    """Return the gradient [R, F] where hidden = relu(.) is not zero, and its float32 sum over rows [F]."""
    masked_RF = torch.empty_like(hidden_RF)
    return masked_RF, sum_rows(_partial_sums(grad_RF, hidden_RF, masked_RF, blocks))


def sum_rows(partial_PF: Tensor, blocks: ColumnBlocks = TOTALS) -> Tensor:
    """Sum over a few rows, [F]: the partial sums of programs."""
    return _launch(partial_PF, None, None, blocks, 1)[0] if len(partial_PF) > 1 else partial_PF[0]


def _partial_sums(grad_RF: Tensor, hidden_RF: Tensor | None, masked_RF: Tensor | None, blocks: ColumnBlocks) -> Tensor:
    num_rows, width = grad_RF.shape
    wanted = blocks.waves * num_multiprocessors(grad_RF.device) // triton.cdiv(width, blocks.columns)
    return _launch(grad_RF, hidden_RF, masked_RF, blocks, max(1, min(triton.cdiv(num_rows, blocks.rows), wanted)))


def _launch(
    grad_RF: Tensor, hidden_RF: Tensor | None, masked_RF: Tensor | None, blocks: ColumnBlocks, num_programs: int
) -> Tensor:
    num_rows, width = grad_RF.shape
    sum_PF = torch.empty(num_programs, width, dtype=torch.float32, device=grad_RF.device)
    _columns_kernel[(triton.cdiv(width, blocks.columns), num_programs)](
        grad_RF,
        hidden_RF,
        masked_RF,
        sum_PF,
        num_rows,
        WIDTH=width,
        MASKS=hidden_RF is not None,
        ROWS=blocks.rows,
        COLUMNS=blocks.columns,
        STAGES=blocks.stages,
        num_warps=blocks.warps,
    )
    return sum_PF
