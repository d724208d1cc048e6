"""dropout(scale W[id] + P[place]) in one pass over memory, in the dtype of a block's rows."""

from __future__ import annotations

from itertools import zip_longest

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.ops.embedding import EmbeddingInputs
from saccade.ops.kernels import residual
from saccade.ops.kernels.follow import follow
from saccade.ops.kernels.launch import launch_options
from saccade.ops.kernels.residual import draw_row_mask


@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    id_ptr,
    table_ptr,
    place_ptr,
    position_ptr,
    seed_ptr,
    y_ptr,
    num_rows,
    num_before,
    num_places,
    threshold,
    factor,
    scale,
    WIDTH: tl.constexpr,
    PLACED: tl.constexpr,
    DROPS: tl.constexpr,
    ROWS: tl.constexpr,
    PADDED: tl.constexpr,
    EARLY: tl.constexpr,
):
    follow(EARLY)
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PADDED)
    inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]
    identity = tl.load(id_ptr + row, row < num_rows, 0).to(tl.int64)
    y = tl.load(table_ptr + identity[:, None] * WIDTH + column[None, :], inside, 0.0).to(tl.float32) * scale
    if PLACED:
        place = tl.load(place_ptr + row % num_places, row < num_rows, 0).to(tl.int64)
        y += tl.load(position_ptr + place[:, None] * WIDTH + column[None, :], inside, 0.0).to(tl.float32)
    if DROPS:
        y = tl.where(draw_row_mask(tl.load(seed_ptr), num_before + row, threshold, ROWS, PADDED), y * factor, 0.0)
    tl.store(y_ptr + row.to(tl.int64)[:, None] * WIDTH + column[None, :], y, inside)


def forward(given: EmbeddingInputs) -> list[Tensor]:
    """Compute what the operator returns."""
    ids, table, places, position, seed, scale, share, dtype = given
    width, blocks = table.shape[1], residual.forward_blocks(table.shape[1])
    outputs: list[Tensor] = []
    num_before = 0  # what is dropped is drawn as if all rows were one behind the other
    for read, place in zip_longest(ids, places):
        num_rows = read.numel()
        y = torch.empty(*read.shape, width, dtype=dtype, device=read.device)
        if num_rows:
            _kernel[(triton.cdiv(num_rows, blocks.rows),)](
                read.contiguous(),
                table,
                place if place is None else place.contiguous(),
                position,
                seed,
                y,
                num_rows,
                num_before,
                1 if place is None else place.numel(),
                *residual.dropout_threshold(share),
                scale,
                WIDTH=width,
                PLACED=place is not None,
                DROPS=seed is not None,
                ROWS=blocks.rows,
                PADDED=max(8, triton.next_power_of_2(width)),
                num_warps=blocks.warps,
                **launch_options(read.device),
            )
        outputs.append(y)
        num_before += num_rows
    return outputs
