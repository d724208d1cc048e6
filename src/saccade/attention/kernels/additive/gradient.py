"""Gradients of the additive score in CUDA C++ (`cuda/additive_gradient.cu`): every fraction once for q, k and v."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from saccade.attention.kernels.additive import sources
from saccade.attention.kernels.additive.fractions import BASE, INPUTS
from saccade.ops.kernels import nvrtc
from saccade.ops.kernels.nvrtc import pointer

FILES = (*BASE, *sources("additive_gradient.cu"))
LANE_KEYS, SLICE = 16, 64  # as there: keys of a warp, dimensions of a block
WARPS = (2, 4, 8)  # of a block: as few as hold all keys
FILLED = 264  # blocks of the most warps that the device runs at once
LEAST_QUERIES = 64  # of a part: fewer aren't worth adding up


class _Target(ctypes.Structure):
    _fields_ = [("parts", ctypes.c_void_p), ("to", ctypes.c_void_p), ("wide", ctypes.c_int), ("add", ctypes.c_int)]


def warps_for(num_keys: int) -> int:
    """Choose the warps of a block."""
    return next((warps for warps in WARPS if warps * LANE_KEYS >= num_keys), WARPS[-1])


def bytes_of(warps: int) -> int:
    """Count the bytes of shared memory: two stages of queries, g, and the warps' sums."""
    queries = 2 * warps
    return 4 * 2 * queries * (SLICE + warps * LANE_KEYS + warps * SLICE)


def gradients(
    query_BTA: Tensor,
    key_BSA: Tensor,
    v_BA: Tensor,
    g_BTS: Tensor,
    of_query: Tensor,
    of_key: Tensor,
    *,
    add: bool = False,
) -> tuple[Callable[[], None], Tensor]:
    """Return a call that writes the gradients of query and key from g = d / d score (float32), and v's gradient [B, A].

    The call may be made on another stream, and holds the memory that it needs. All tensors are contiguous. The
    gradients may be float32 or in the inputs' dtype. `add`: to what `of_key`, float32, holds.
    """
    (count, num_queries, width), num_keys = query_BTA.shape, key_BSA.shape[1]
    if not num_queries or not num_keys:
        of_query.zero_()
        if not add:
            of_key.zero_()
        return lambda: None, torch.zeros_like(v_BA)
    warps, padded, slices = warps_for(num_keys), -(-width // 4) * 4, -(-width // SLICE)
    tiles = -(-num_keys // (warps * LANE_KEYS))
    # with few blocks, several share a tile's queries
    parts = max(1, min(FILLED // (slices * tiles * count), num_queries // LEAST_QUERIES))
    chunk = -(-num_queries // (16 * parts)) * 16
    parts = -(-num_queries // chunk)
    make = g_BTS.new_empty
    of_v = make(tiles * parts, count, width)
    query_parts = make(tiles, count, num_queries, padded) if tiles > 1 else None
    key_parts = make(parts, count, num_keys, padded) if parts > 1 else None
    sum_of_v = of_v[0] if tiles * parts == 1 else torch.empty_like(v_BA)
    module = nvrtc.load(FILES, {"INPUT": INPUTS[query_BTA.dtype], "WARPS": warps}, g_BTS.device)

    def launch() -> None:
        targets = [
            _Target(pointer(query_parts), pointer(of_query), of_query.dtype == torch.float32, False),
            _Target(pointer(key_parts), pointer(of_key), of_key.dtype == torch.float32, add),
        ]
        given = [pointer(x) for x in (query_BTA, key_BSA, v_BA, g_BTS)]
        sizes = [ctypes.c_int(x) for x in (num_queries, num_keys, width, padded)]
        arguments = [*given, *targets, pointer(of_v), *sizes, ctypes.c_int(chunk)]
        module.launch("gradients", (slices, tiles * parts, count), 32 * warps, bytes_of(warps), arguments)
        if tiles * parts == 1:
            return
        sums, split = [pointer(x) for x in (of_v, sum_of_v, v_BA)], [ctypes.c_int(x) for x in (tiles, parts)]
        groups = count * max(num_queries, num_keys) * padded // 4
        arguments = [*targets, *sums, ctypes.c_int(count), *sizes, *split]
        module.launch("add_parts", (min(-(-groups // 256), 1056), 3, 1), 256, 0, arguments)

    return launch, sum_of_v
