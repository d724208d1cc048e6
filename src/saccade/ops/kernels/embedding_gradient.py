"""The gradient of a table of embeddings: for each id the sum of its places' gradients, always in the same order.

Places are sorted by id and cut into chunks of equal size, however often an id occurs: a product with a matrix of zeros
and ones sums the chunk's places of the same id. What lies within a chunk is written at once; what crosses a border is
joined afterwards. What was dropped is drawn again from the seed.

R: places of all ids, one behind the other. P: partial sums.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.ops.embedding import EmbeddingGradientInputs
from saccade.ops.kernels.columns import ColumnBlocks
from saccade.ops.kernels.residual import draw_mask, dropout_threshold

SUMS = ColumnBlocks(rows=32, columns=128, warps=4)  # places and columns of a program
EXACT_SUMS = ColumnBlocks(rows=32, columns=64, warps=4)  # in float32 without tensor cores: short products
JOINED = ColumnBlocks(rows=32, columns=64, warps=4)  # chunks and columns a program adds at once
SHORT = 1 << 16  # ids below it are told apart by 16 bits, which are sorted in half the passes


@triton.jit
def _id(key_ptr, at, num_places):  # type: ignore[no-untyped-def]
    """Read the id at places of the sorted order; -1 where there is none."""
    exists = (at >= 0) & (at < num_places)
    key = tl.load(key_ptr + at, exists, 0).to(tl.int32)
    if key_ptr.dtype.element_ty == tl.int16:
        key = key & 0xFFFF
    return tl.where(exists, key, -1)


@triton.jit
def _sums_kernel(  # type: ignore[no-untyped-def]
    grad_ptr,
    second_ptr,
    key_ptr,
    order_ptr,
    seed_ptr,
    table_ptr,
    partial_ptr,
    num_places,
    num_first,
    threshold,
    scale,
    WIDTH: tl.constexpr,
    TWO: tl.constexpr,
    DROPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
):
    strips: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    chunk, strip = tl.program_id(0) // strips, tl.program_id(0) % strips
    start, column = chunk * ROWS, strip * COLUMNS + tl.arange(0, COLUMNS)
    at = start + tl.arange(0, ROWS)
    row = tl.load(order_ptr + at, at < num_places, 0).to(tl.int32)
    inside = (at < num_places)[:, None] & (column < WIDTH)[None, :]
    row_ptr = grad_ptr + row.to(tl.int64) * WIDTH
    if TWO:
        row_ptr = tl.where(row < num_first, row_ptr, second_ptr + (row - num_first).to(tl.int64) * WIDTH)
    grad = tl.load(row_ptr[:, None] + column[None, :], inside, 0.0)
    if DROPS:
        eight = strip * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
        word = row[:, None] * (PADDED // 8) + eight[None, :]
        grad = tl.where(draw_mask(tl.load(seed_ptr), word, threshold, ROWS, COLUMNS), grad, 0.0)
    identity = _id(key_ptr, at, num_places)
    same = tl.where(identity[:, None] == identity[None, :], 1.0, 0.0).to(grad.dtype)
    total = tl.dot(same, grad, input_precision="ieee") * scale  # at each place the sum of the whole run
    before, after = _id(key_ptr, start - 1, num_places), _id(key_ptr, start + ROWS, num_places)
    began, goes_on = identity == before, identity == after
    is_last = (identity != _id(key_ptr, at + 1, num_places)) | (at == start + ROWS - 1)
    written = inside & is_last[:, None]
    is_whole = ~(began | goes_on)
    tl.store(table_ptr + identity.to(tl.int64)[:, None] * WIDTH + column[None, :], total, written & is_whole[:, None])
    part = chunk * 2 + tl.where(began, 0, 1)
    tl.store(partial_ptr + part.to(tl.int64)[:, None] * WIDTH + column[None, :], total, written & ~is_whole[:, None])


@triton.jit
def _join_kernel(  # type: ignore[no-untyped-def]
    key_ptr,
    partial_ptr,
    table_ptr,
    num_places,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    strips: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    chunk, strip = tl.program_id(0) // strips, tl.program_id(0) % strips
    start, column = chunk * ROWS, strip * COLUMNS + tl.arange(0, COLUMNS)
    identity = _id(key_ptr, start + ROWS - 1, num_places)
    goes_on = identity == _id(key_ptr, start + ROWS, num_places)
    if goes_on & (identity != _id(key_ptr, start - 1, num_places)):  # the chunk in which a run begins sums it
        total = tl.zeros((CHUNKS, COLUMNS), tl.float32)
        first = chunk + 1
        while goes_on:
            at = first + tl.arange(0, CHUNKS)
            inside = (_id(key_ptr, at * ROWS, num_places) == identity)[:, None] & (column < WIDTH)[None, :]
            total += tl.load(partial_ptr + at.to(tl.int64)[:, None] * (2 * WIDTH) + column[None, :], inside, 0.0)
            first += CHUNKS
            goes_on = _id(key_ptr, first * ROWS, num_places) == identity
        own = tl.load(partial_ptr + (chunk * 2 + 1).to(tl.int64) * WIDTH + column, column < WIDTH, 0.0)
        tl.store(table_ptr + identity.to(tl.int64) * WIDTH + column, own + tl.sum(total, 0), column < WIDTH)


def backward(given: EmbeddingGradientInputs, blocks: ColumnBlocks | None = None) -> Tensor:
    """Return, for each id, the sum of what was kept of its gradients, times `scale`; zeros if it is nowhere. [V, D]."""
    grads, ids, seed, vocabulary, scale, share, dtype = given
    grad, *second = (grad.contiguous() for grad in grads)
    width = grad.shape[-1]
    table_VD = torch.zeros(vocabulary, width, dtype=dtype, device=grad.device)
    all_R = torch.cat([one.flatten() for one in ids]) if second else ids[0].flatten()
    num_places = len(all_R)
    if not num_places:
        return table_VD
    key_R, order_R = all_R.to(torch.int16 if vocabulary <= SHORT else torch.int32).sort(stable=True)
    blocks = blocks or (EXACT_SUMS if grad.dtype == torch.float32 else SUMS)
    threshold, factor = (0, 1.0) if seed is None else dropout_threshold(share)
    num_chunks, strips = triton.cdiv(num_places, blocks.rows), triton.cdiv(width, blocks.columns)
    partial_PD = torch.empty(2 * num_chunks, width, dtype=torch.float32, device=grad.device)
    _sums_kernel[(num_chunks * strips,)](
        grad,
        second[0] if second else None,
        key_R,
        order_R,
        seed,
        table_VD,
        partial_PD,
        num_places,
        ids[0].numel(),
        threshold,
        factor * scale,
        WIDTH=width,
        TWO=bool(second),
        DROPS=seed is not None,
        ROWS=blocks.rows,
        COLUMNS=blocks.columns,
        PADDED=max(8, triton.next_power_of_2(width)),
        num_warps=blocks.warps,
    )
    if num_chunks > 1:
        _join_kernel[((num_chunks - 1) * triton.cdiv(width, JOINED.columns),)](
            key_R,
            partial_PD,
            table_VD,
            num_places,
            WIDTH=width,
            ROWS=blocks.rows,
            CHUNKS=JOINED.rows,
            COLUMNS=JOINED.columns,
            num_warps=JOINED.warps,
        )
    return table_VD
