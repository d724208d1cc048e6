"""Additive attention in CUDA C++ (`cuda/additive_*.cu`): exponentials once, four fractions to a reciprocal.

docs/additive.md derives it. All tensors here are contiguous: query [N, T, A], key [N, S, A], value [N, S, D], v [N, A].
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.attention.kernels import native
from saccade.attention.kernels.native import pointer
from saccade.attention.kernels.scope import Dropout, Masked, Scope

INPUTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
ROWS = 32  # rows that share a bound: ROWS in additive_prepare.cu
BASE = ("device.cuh", "additive_prepare.cu")
TILED = (*BASE, "additive_tile.cuh")
DEPTH = 16  # as in additive_tile.cuh


class Tiling(NamedTuple):
    """A block of threads: warps of 32 x 32 pairs along both sides, and teams that share the width."""

    warps_t: int
    warps_s: int
    split: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps_t * self.warps_s * self.split

    def stages(self, at_least: int = 0) -> int:
        """Floats of shared memory for two stages of both sides."""
        width = DEPTH * self.split
        return 2 * max(32 * (self.warps_t + self.warps_s) * (width + 4) + width, at_least)

    def bytes_to_attend(self, value_width: int) -> int:
        """Stages (or both halves of the weights), sums, four rows."""
        tile_t, tile_s = 32 * self.warps_t, 32 * self.warps_s
        sums = tile_t * (-(-value_width // 32) * 32)
        return 4 * (self.stages(tile_t * tile_s) + sums + 4 * tile_t)

    def defines(self, dtype: torch.dtype) -> dict[str, int]:
        """For the compiler."""
        return {"INPUT": INPUTS[dtype], "WARPS_T": self.warps_t, "WARPS_S": self.warps_s, "SPLIT": self.split}


LARGE, SMALL, FEW = Tiling(2, 2, 2), Tiling(1, 2, 4), Tiling(1, 2, 8)
ALONE = Tiling(2, 2, 1)  # scores, and no sums in shared memory: four blocks fit a multiprocessor
MANY = 400  # blocks: with fewer of these, multiprocessors have too few warps
FILLED = 200  # blocks: fewer large tiles than this leave multiprocessors idle
ONE_EACH = 132  # blocks: with fewer, each has a multiprocessor of its own, and more warps hide its waiting
SHARED_LIMIT, SHARED_HALF = 200 << 10, 113 << 10  # of a block alone on its multiprocessor, and of one of two


class _Scores(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("query", "key", "v", "folded_query", "swapped_key", "reciprocal_v")),
        *((name, ctypes.c_void_p) for name in ("line", "query_bound", "key_bound")),
        *((name, ctypes.c_int) for name in ("num_queries", "num_keys", "width", "padded")),
    ]


class _Beyond(ctypes.Structure):
    _fields_ = [("range", ctypes.c_void_p), ("limit", ctypes.c_float)]


class Beyond(NamedTuple):
    """Batch entries that a cheaper path has done are left: those whose max |q| + max |k| [N, 2] is up to a limit."""

    range_N2: Tensor | None = None
    limit: float = 0.0

    def struct(self) -> _Beyond:
        """The C++ struct."""
        return _Beyond(pointer(self.range_N2), self.limit)


class Prepared(NamedTuple):
    """What one call's kernels share, [N, rows, padded A] and smaller, all float32; keys have neighbours swapped."""

    query: Tensor
    key: Tensor
    v: Tensor
    folded_query: Tensor
    swapped_key: Tensor
    reciprocal_v: Tensor
    line: Tensor
    query_bound: Tensor
    key_bound: Tensor

    def part(self, count: slice, steps: slice) -> Prepared:
        """Some batch entries, or some queries (whole blocks of them) of one."""
        blocks = slice(steps.start // ROWS, -(-steps.stop // ROWS))
        cuts = (steps, None, None, steps, None, None, None, blocks, None)
        parts = [tensor[count] if cut is None else tensor[count, cut] for tensor, cut in zip(self, cuts, strict=True)]
        assert all(part.is_contiguous() for part in parts)
        return Prepared(*parts)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """N, T, S."""
        return self.query.shape[0], self.query.shape[1], self.key.shape[1]

    @property
    def padded(self) -> int:
        """A, as a whole number of fours."""
        return self.swapped_key.shape[-1]

    def scores(self) -> _Scores:
        """The C++ struct, alive as long as these tensors are."""
        tensors = (self.query, self.key, self.v, self.folded_query, self.swapped_key)
        others = (self.reciprocal_v, self.line, self.query_bound, self.key_bound)
        _, num_queries, num_keys = self.sizes
        width = self.query.shape[-1]
        return _Scores(*(pointer(x) for x in (*tensors, *others)), num_queries, num_keys, width, self.padded)


def prepare(query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor, *, beyond: Beyond | None = None) -> Prepared:
    """Exponentials of queries and keys, v folded into the queries', and bounds on their products."""
    (count, num_queries, width), num_keys = query_NTA.shape, key_NSA.shape[1]
    padded = -(-width // 4) * 4
    query_blocks, key_blocks = -(-num_queries // ROWS), -(-num_keys // ROWS)
    make = v_NA.new_empty
    made = Prepared(
        query_NTA,
        key_NSA,
        v_NA,
        make(count, num_queries, padded),
        make(count, num_keys, padded),
        make(count, padded),
        make(count, 2),
        make(count, query_blocks, 2),
        make(count, key_blocks, 2),
    )
    module = native.load(BASE, {"INPUT": INPUTS[query_NTA.dtype]}, query_NTA.device)
    sizes = [ctypes.c_int(size) for size in (num_queries, num_keys, width, padded)]
    tensors = [pointer(x) for x in made]
    module.launch(
        "prepare", (query_blocks + key_blocks, count, 1), 512, 64, [*tensors, *sizes, (beyond or Beyond()).struct()]
    )
    return made


def scores(prepared: Prepared) -> Tensor:
    """e_ts = v·tanh(q_t + k_s), [N, T, S] in float32."""
    count, num_queries, num_keys = prepared.sizes
    score_NTS = prepared.v.new_empty(prepared.sizes)
    tiles = count * -(-num_queries // 64) * -(-num_keys // 64)
    tiling = ALONE if tiles >= MANY else LARGE if tiles >= ONE_EACH else FEW
    module = native.load((*TILED, "additive_score.cu"), tiling.defines(prepared.query.dtype), score_NTS.device)
    grid = (-(-num_keys // (32 * tiling.warps_s)), -(-num_queries // (32 * tiling.warps_t)), count)
    tile = 32 * tiling.warps_t * (32 * tiling.warps_s + 4)
    shared = 4 * max(tiling.stages(), tile)
    module.launch("scores", grid, tiling.threads, shared, [prepared.scores(), pointer(score_NTS)])
    return score_NTS


def tiling_to_attend(count: int, num_queries: int, value_width: int) -> Tiling | None:
    """The larger tile where it fills the device and two fit a multiprocessor; None: nothing fits."""
    tiles = count * -(-num_queries // 32)
    if FEW.bytes_to_attend(value_width) <= SHARED_LIMIT and tiles <= ONE_EACH:
        return FEW
    if LARGE.bytes_to_attend(value_width) <= SHARED_HALF and count * -(-num_queries // 64) >= FILLED:
        return LARGE
    return SMALL if SMALL.bytes_to_attend(value_width) <= SHARED_LIMIT else None


def attend(
    prepared: Prepared,
    value_NSD: Tensor,
    scope: Scope,
    dropout: Dropout,
    tiling: Tiling,
    *,
    over: tuple[Tensor, Tensor] | None = None,
    beyond: Beyond | None = None,
) -> tuple[Tensor, Tensor]:
    """The weighted sums [N, T, D], and the logarithm of each row's sum of e^score [N, T] (no key: infinite).

    `over`: where they are written, if `beyond` leaves some entries as they are.
    """
    count, num_queries, _ = prepared.sizes
    width = value_NSD.shape[-1]
    if over is None:
        over = (value_NSD.new_empty(count, num_queries, width), prepared.line.new_empty(count, num_queries))
    defines = {**tiling.defines(value_NSD.dtype), "BLOCKS": max(1, 512 // tiling.threads)}
    module = native.load((*TILED, "additive_attend.cu"), defines, value_NSD.device)
    grid = (-(-num_queries // (32 * tiling.warps_t)), count, 1)
    structs = [prepared.scores(), scope.allowed(), dropout.drawing()]
    tensors = [pointer(x) for x in (value_NSD, *over)]
    arguments = [*structs, *tensors, ctypes.c_int(width), (beyond or Beyond()).struct()]
    module.launch("attend", grid, tiling.threads, tiling.bytes_to_attend(width), arguments)
    return over


def weights_and_gradient(score_NTS: Tensor, g_NTS: Tensor, masked: Masked, dtype: torch.dtype) -> Tensor:
    """The weights as they met the values, in `dtype`; in `g_NTS` the gradient of the weights becomes the scores'."""
    count, num_queries, num_keys = score_NTS.shape
    weight = score_NTS.new_empty(score_NTS.shape, dtype=dtype)
    tensors = [pointer(x) for x in (score_NTS, g_NTS, weight)]
    structs = [masked.scope.allowed(), masked.dropout.drawing()]
    sizes = [ctypes.c_int(x) for x in (num_queries, num_keys, masked.first_n, masked.first_t)]
    module = native.load((*BASE, "additive_softmax.cu"), {"INPUT": INPUTS[dtype]}, score_NTS.device)
    module.launch("weights_and_gradient", (num_queries, count, 1), 128, 64, [*tensors, *structs, *sizes])
    return weight


def softmax(score_NTS: Tensor, scope: Scope, dropout: Dropout, dtype: torch.dtype) -> Tensor:
    """Scores become weights, in place; returned as they meet the values, in `dtype`."""
    weight = _met(score_NTS, dropout, dtype)
    tensors = [pointer(score_NTS), pointer(None if weight is score_NTS else weight)]
    _launch_rows("softmax", score_NTS, [*tensors, scope.allowed(), dropout.drawing()], dtype)
    return weight


def softmax_backward(a_NTS: Tensor, g_NTS: Tensor, dropout: Dropout, dtype: torch.dtype) -> Tensor:
    """In `g_NTS` the gradient of the weights becomes the scores'; returns the weights as they met the values."""
    weight = _met(a_NTS, dropout, dtype)
    tensors = [pointer(a_NTS), pointer(g_NTS), pointer(None if weight is a_NTS else weight)]
    _launch_rows("softmax_backward", a_NTS, [*tensors, dropout.drawing()], dtype)
    return weight


def _met(a_NTS: Tensor, dropout: Dropout, dtype: torch.dtype) -> Tensor:
    return a_NTS if dtype == torch.float32 and not dropout.share else torch.empty_like(a_NTS, dtype=dtype)


def _launch_rows(name: str, a_NTS: Tensor, arguments: list[object], dtype: torch.dtype) -> None:
    count, num_queries, num_keys = a_NTS.shape
    module = native.load((*BASE, "additive_softmax.cu"), {"INPUT": INPUTS[dtype]}, a_NTS.device)
    sizes = [ctypes.c_int(num_queries), ctypes.c_int(num_keys)]
    module.launch(name, (num_queries, count, 1), 128, 64, [*arguments, *sizes])
