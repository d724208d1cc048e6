"""The gradient through a relu, and its column sums (the gradient of the bias before it), in one pass over memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.layers.kernels.residual import num_multiprocessors


class Blocks(NamedTuple):
    """How the work is cut: a program's tile, its warps, programs for each multiprocessor, loads ahead."""

    rows: int = 16
    columns: int = 256
    warps: int = 8
    waves: int = 4
    stages: int = 2


BLOCKS = Blocks()


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
    STAGES: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in tl.range(tl.program_id(1) * ROWS, num_rows, tl.num_programs(1) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
        inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]
        grad, hidden = tl.load(grad_ptr + at, inside, 0.0), tl.load(hidden_ptr + at, inside, 0.0)
        grad = tl.where(hidden > 0.0, grad, 0.0)
        tl.store(masked_ptr + at, grad, inside)
        total += grad.to(tl.float32)
    tl.store(partial_ptr + tl.program_id(1) * WIDTH + column, tl.sum(total, 0), column < WIDTH)


def masked(grad: Tensor, hidden: Tensor, blocks: Blocks = BLOCKS) -> tuple[Tensor, Tensor]:
    """The gradient [N, F] where hidden = relu(.) is not zero, and its float32 sum over rows [F]."""
    num_rows, width = hidden.shape
    strips = triton.cdiv(width, blocks.columns)
    wanted = blocks.waves * num_multiprocessors(hidden.device) // strips
    num_programs = max(1, min(triton.cdiv(num_rows, blocks.rows), wanted))
    result = torch.empty_like(hidden)
    partial = torch.empty(num_programs, width, dtype=torch.float32, device=hidden.device)
    _masked_kernel[(strips, num_programs)](
        grad,
        hidden,
        result,
        partial,
        num_rows,
        WIDTH=width,
        ROWS=blocks.rows,
        COLUMNS=blocks.columns,
        STAGES=blocks.stages,
        num_warps=blocks.warps,
    )
    return result, partial.sum(0)
