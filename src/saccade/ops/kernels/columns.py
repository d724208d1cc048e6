"""Sums over rows in one pass over memory: of a gradient (that is a bias's), or of one that a relu masks as well.

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
    """How the work is cut: a program's tile, its warps, programs for each multiprocessor, loads ahead."""

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


def column_sums(x_NF: Tensor, blocks: ColumnBlocks = SUMS) -> Tensor:
    """The float32 sum over rows [F]."""
    return totals(_partial_sums(x_NF, None, None, blocks))


def masked(grad_NF: Tensor, hidden_NF: Tensor, blocks: ColumnBlocks = MASKED_SUMS) -> tuple[Tensor, Tensor]:
    """The gradient [N, F] where hidden = relu(.) is not zero, and its float32 sum over rows [F]."""
    masked_NF = torch.empty_like(hidden_NF)
    return masked_NF, totals(_partial_sums(grad_NF, hidden_NF, masked_NF, blocks))


def totals(partial_PF: Tensor, blocks: ColumnBlocks = TOTALS) -> Tensor:
    """The sum over few rows [F]: what programs found."""
    return _launched(partial_PF, None, None, blocks, 1)[0] if len(partial_PF) > 1 else partial_PF[0]


def _partial_sums(grad_NF: Tensor, hidden_NF: Tensor | None, masked_NF: Tensor | None, blocks: ColumnBlocks) -> Tensor:
    num_rows, width = grad_NF.shape
    wanted = blocks.waves * num_multiprocessors(grad_NF.device) // triton.cdiv(width, blocks.columns)
    return _launched(grad_NF, hidden_NF, masked_NF, blocks, max(1, min(triton.cdiv(num_rows, blocks.rows), wanted)))


def _launched(
    grad_NF: Tensor, hidden_NF: Tensor | None, masked_NF: Tensor | None, blocks: ColumnBlocks, num_programs: int
) -> Tensor:
    num_rows, width = grad_NF.shape
    sum_PF = torch.empty(num_programs, width, dtype=torch.float32, device=grad_NF.device)
    _columns_kernel[(triton.cdiv(width, blocks.columns), num_programs)](
        grad_NF,
        hidden_NF,
        masked_NF,
        sum_PF,
        num_rows,
        WIDTH=width,
        MASKS=hidden_NF is not None,
        ROWS=blocks.rows,
        COLUMNS=blocks.columns,
        STAGES=blocks.stages,
        num_warps=blocks.warps,
    )
    return sum_PF
