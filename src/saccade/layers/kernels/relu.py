"""The gradient through a relu, and its column sums (the gradient of the bias before it), in one pass over memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.layers.kernels.residual import num_multiprocessors

ROWS, COLUMNS, WARPS, WAVES = 16, 256, 8, 4


@triton.jit
def _masked_kernel(  # type: ignore[no-untyped-def]
    grad_ptr,
    hidden_ptr,
    masked_ptr,
    partial_ptr,
    num_rows,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(tl.program_id(1) * ROWS, num_rows, tl.num_programs(1) * ROWS):
        row = first + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
        inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]
        grad, hidden = tl.load(grad_ptr + at, inside, 0.0), tl.load(hidden_ptr + at, inside, 0.0)
        grad = tl.where(hidden > 0.0, grad, 0.0)
        tl.store(masked_ptr + at, grad, inside)
        total += grad.to(tl.float32)
    tl.store(partial_ptr + tl.program_id(1) * WIDTH + column, tl.sum(total, 0), column < WIDTH)


def masked(
    grad: Tensor, hidden: Tensor, *, rows: int = ROWS, columns: int = COLUMNS, warps: int = WARPS, waves: int = WAVES
) -> tuple[Tensor, Tensor]:
    """The gradient [N, F] where hidden = relu(.) is not zero, and its float32 sum over rows [F]."""
    num_rows, width = hidden.shape
    strips = triton.cdiv(width, columns)
    programs = max(1, min(triton.cdiv(num_rows, rows), waves * num_multiprocessors(hidden.device) // strips))
    result = torch.empty_like(hidden)
    partial = torch.empty(programs, width, dtype=torch.float32, device=hidden.device)
    _masked_kernel[(strips, programs)](
        grad, hidden, result, partial, num_rows, WIDTH=width, ROWS=rows, COLUMNS=columns, num_warps=warps
    )
    return result, partial.sum(0)
