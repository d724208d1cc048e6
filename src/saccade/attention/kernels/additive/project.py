"""W q of few rows by a small kernel, in parts of the width: their reader adds them up, and may begin early."""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.ops.kernels import nvrtc

ROWS, OUTPUTS, DEPTH, STAGES, APART = 64, 32, 64, 4, 16  # of a block, as in additive_project.cu
THREADS = 256
FEW_ROWS = 128  # larger products are cuBLAS's
ONE_EACH = 132  # blocks: up to here each has a multiprocessor of its own
MOST_PARTS = 8  # of the width: more cost the reader more than they save here


class _Projection(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("query", "weight", "output")),
        *((name, ctypes.c_int) for name in ("num_rows", "num_outputs", "width", "chunk")),
    ]


class _Plan(NamedTuple):
    grid: tuple[int, int, int]
    chunk: int
    shared: int


def project(query_B1D: Tensor, weight_AD: Tensor, module: nvrtc.Module) -> tuple[Tensor, int]:
    """Compute W q, [..., 1, A], and return it with 0; few rows in parts [parts, B, A] (float32), with their number."""
    num_outputs, width = weight_AD.shape
    count = query_B1D.numel() // width
    if count > FEW_ROWS or weight_AD.dtype != query_B1D.dtype or not weight_AD.is_contiguous():
        return query_B1D @ weight_AD.to(query_B1D.dtype).mT, 0
    grid, chunk, shared = _plan(count, num_outputs, width, query_B1D.itemsize)
    made = query_B1D.new_empty((grid[2], count, num_outputs), dtype=torch.float32)
    places = (query_B1D.data_ptr(), weight_AD.data_ptr(), made.data_ptr())
    given = _Projection(*places, count, num_outputs, width, chunk)
    module.launch("project", grid, THREADS, shared, (given,), nvrtc.Turn.FIRST)
    return made, grid[2]


@functools.lru_cache(1024)
def _plan(count: int, num_outputs: int, width: int, itemsize: int) -> _Plan:
    tiles, blocks = -(-num_outputs // OUTPUTS), -(-count // ROWS)
    parts = max(1, min(ONE_EACH // (tiles * blocks), MOST_PARTS))
    chunk = -(-width // (parts * DEPTH)) * DEPTH
    shared = (ROWS + OUTPUTS) * min(STAGES, chunk // DEPTH) * (DEPTH + APART) * itemsize
    return _Plan((tiles, blocks, -(-width // chunk)), chunk, shared)
