"""Additive attention in CUDA C++ (`cuda/additive_*.cu`): exponentials once, four fractions to a reciprocal.

docs/additive.md derives it. All tensors here are contiguous: query [B, T, A], key [B, S, A], value [B, S, D], v [B, A].
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.attention.kernels.additive import sources
from saccade.attention.kernels.additive.scope import Dropout, Scope
from saccade.ops.kernels import nvrtc
from saccade.ops.kernels.nvrtc import pointer

INPUTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
ROWS = 32  # rows that share a bound: ROWS in additive_prepare.cu
BASE = sources("device.cuh", "additive_prepare.cu")
TILED = (*BASE, *sources("additive_tile.cuh"))
DEPTH = 16  # as in additive_tile.cuh


class Tiling(NamedTuple):
    """A block of threads: warps of 32 x 32 pairs along both sides, and teams that share the width."""

    warps_t: int
    warps_s: int
    split: int

    @property
    def threads(self) -> int:
        return 32 * self.warps_t * self.warps_s * self.split

    def stages(self, at_least: int = 0) -> int:
        """Count the floats of shared memory for two stages of both sides."""
        width = DEPTH * self.split
        return 2 * max(32 * (self.warps_t + self.warps_s) * (width + 4) + width, at_least)

    def bytes_to_attend(self, value_width: int, raw_width: int = 0) -> int:
        """Count the bytes of shared memory: stages (or both halves of the weights), sums, four rows, v of raw terms."""
        tile_t, tile_s = 32 * self.warps_t, 32 * self.warps_s
        sums = tile_t * (-(-value_width // 32) * 32)
        folded = 2 * raw_width + self.threads // 16 + 1 if raw_width else 0
        return 4 * (self.stages(tile_t * tile_s) + sums + 4 * tile_t + folded)

    def defines(self, dtype: torch.dtype, *, raw: bool = False) -> dict[str, int]:
        """Return the definitions for the compiler."""
        shape = {"WARPS_T": self.warps_t, "WARPS_S": self.warps_s, "SPLIT": self.split}
        return {"INPUT": INPUTS[dtype], **shape, "RAW": int(raw)}


LARGE, SMALL, FEW = Tiling(2, 2, 2), Tiling(1, 2, 4), Tiling(1, 2, 8)
SHORT, SHORT_FEW = Tiling(1, 1, 4), Tiling(1, 1, 8)  # up to 32 keys
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
    """Batch entries that a cheaper path has done are left: those whose max |q| + max |k| [B, 2] is up to a limit."""

    range_B2: Tensor | None = None
    limit: float = 0.0

    def struct(self) -> _Beyond:
        return _Beyond(pointer(self.range_B2), self.limit)


class RawTerms(NamedTuple):
    """Queries, keys and v as they are given: their exponentials are taken where scores are made."""

    query: Tensor
    key: Tensor
    v: Tensor

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of entries, queries and keys."""
        return self.query.shape[0], self.query.shape[1], self.key.shape[1]

    @property
    def padded(self) -> int:
        """The hidden width A, rounded up to a multiple of four."""
        return -(-self.query.shape[-1] // 4) * 4

    def scores(self, *made: Tensor) -> _Scores:
        """Return the C++ struct, alive as long as these tensors are."""
        made_or_none = made or (None,) * 6
        _, num_queries, num_keys = self.sizes
        width = self.query.shape[-1]
        return _Scores(*(pointer(x) for x in (*self, *made_or_none)), num_queries, num_keys, width, self.padded)


class PreparedInputs(NamedTuple):
    """Inputs shared by a call's kernels, [B, rows, padded A] and smaller, all float32; keys have neighbours swapped."""

    query: Tensor
    key: Tensor
    v: Tensor
    folded_query: Tensor
    swapped_key: Tensor
    reciprocal_v: Tensor
    line: Tensor
    query_bound: Tensor
    key_bound: Tensor

    @property
    def raw(self) -> RawTerms:
        """The terms that it was made of."""
        return RawTerms(self.query, self.key, self.v)

    def part(self, count: slice, steps: slice) -> PreparedInputs:
        """Return some batch entries, or some queries (whole blocks of them) of one."""
        blocks = slice(steps.start // ROWS, -(-steps.stop // ROWS))
        cuts = (steps, None, None, steps, None, None, None, blocks, None)
        parts = [tensor[count] if cut is None else tensor[count, cut] for tensor, cut in zip(self, cuts, strict=True)]
        assert all(part.is_contiguous() for part in parts)
        return PreparedInputs(*parts)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of entries, queries and keys."""
        return self.raw.sizes

    def scores(self) -> _Scores:
        """Return the C++ struct, alive as long as these tensors are."""
        return self.raw.scores(*self[3:])


def prepare(query_BTA: Tensor, key_BSA: Tensor, v_BA: Tensor, *, beyond: Beyond | None = None) -> PreparedInputs:
    """Compute the exponentials of queries and keys, with v in the queries', and bounds on their products."""
    (count, num_queries, width), num_keys = query_BTA.shape, key_BSA.shape[1]
    padded = -(-width // 4) * 4
    query_blocks, key_blocks = -(-num_queries // ROWS), -(-num_keys // ROWS)
    make = v_BA.new_empty
    made = PreparedInputs(
        query_BTA,
        key_BSA,
        v_BA,
        make(count, num_queries, padded),
        make(count, num_keys, padded),
        make(count, padded),
        make(count, 2),
        make(count, query_blocks, 2),
        make(count, key_blocks, 2),
    )
    module = nvrtc.load(BASE, {"INPUT": INPUTS[query_BTA.dtype]}, query_BTA.device)
    sizes = [ctypes.c_int(size) for size in (num_queries, num_keys, width, padded)]
    tensors = [pointer(x) for x in made]
    module.launch(
        "prepare", (query_blocks + key_blocks, count, 1), 512, 256, [*tensors, *sizes, (beyond or Beyond()).struct()]
    )
    return made


def scores(prepared: PreparedInputs) -> Tensor:
    """Compute e_ts = v·tanh(q_t + k_s), [B, T, S] in float32."""
    count, num_queries, num_keys = prepared.sizes
    score_BTS = prepared.v.new_empty(prepared.sizes)
    tiles = count * -(-num_queries // 64) * -(-num_keys // 64)
    tiling = ALONE if tiles >= MANY else LARGE if tiles >= ONE_EACH else FEW
    module = nvrtc.load((*TILED, *sources("additive_score.cu")), tiling.defines(prepared.query.dtype), score_BTS.device)
    grid = (-(-num_keys // (32 * tiling.warps_s)), -(-num_queries // (32 * tiling.warps_t)), count)
    tile = 32 * tiling.warps_t * (32 * tiling.warps_s + 4) * tiling.split
    shared = 4 * max(tiling.stages(), tile)
    module.launch("scores", grid, tiling.threads, shared, [prepared.scores(), pointer(score_BTS)])
    return score_BTS


def tiling_to_attend(count: int, num_queries: int, value_width: int) -> Tiling | None:
    """Choose the larger tile if it fills the device and two fit a multiprocessor; None if no tile fits."""
    tiles = count * -(-num_queries // 32)
    if FEW.bytes_to_attend(value_width) <= SHARED_LIMIT and tiles <= ONE_EACH:
        return FEW
    if LARGE.bytes_to_attend(value_width) <= SHARED_HALF and count * -(-num_queries // 64) >= FILLED:
        return LARGE
    return SMALL if SMALL.bytes_to_attend(value_width) <= SHARED_LIMIT else None


def tiling_to_attend_raw(query_BTA: Tensor, key_BSA: Tensor, value_BSD: Tensor) -> Tiling | None:
    """Choose a tile for entries whose keys fit in it, from raw terms; None if they must be prepared first."""
    (count, num_queries, width), (_, num_keys, value_width) = query_BTA.shape, value_BSD.shape
    size = 4 * query_BTA.element_size()
    if width % 4 or any(x.data_ptr() % size for x in (query_BTA, key_BSA)):
        return None
    is_few = count * -(-num_queries // 32) <= ONE_EACH
    short, long = (SHORT_FEW, FEW) if is_few else (SHORT, SMALL)
    tiling = short if num_keys <= 32 else long
    fits = tiling.bytes_to_attend(value_width, width) <= SHARED_LIMIT
    return tiling if fits and num_keys <= 32 * tiling.warps_s else None


def attend(
    prepared: PreparedInputs | RawTerms,
    value_BSD: Tensor,
    scope: Scope,
    dropout: Dropout,
    tiling: Tiling,
    *,
    over: tuple[Tensor, Tensor] | None = None,
    beyond: Beyond | None = None,
    kept: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the weighted sums [B, T, D], and the log of each row's sum of e^score [B, T] (infinite without keys).

    `over`: where they are written, if `beyond` leaves some entries as they are. `kept`: where the weights [B, T, S] are
    written, before dropout, if all keys are one tile.
    """
    count, num_queries, _ = prepared.sizes
    width = value_BSD.shape[-1]
    if over is None:
        over = (value_BSD.new_empty(count, num_queries, width), prepared.v.new_empty(count, num_queries))
    raw_width = prepared.padded if isinstance(prepared, RawTerms) else 0
    defines = {**tiling.defines(value_BSD.dtype, raw=raw_width > 0), "BLOCKS": max(1, 512 // tiling.threads)}
    module = nvrtc.load((*TILED, *sources("additive_attend.cu")), defines, value_BSD.device)
    grid = (-(-num_queries // (32 * tiling.warps_t)), count, 1)
    structs = [prepared.scores(), scope.struct(), dropout.struct()]
    tensors = [pointer(x) for x in (value_BSD, *over, kept)]
    arguments = [*structs, *tensors, ctypes.c_int(width), (beyond or Beyond()).struct()]
    shared = tiling.bytes_to_attend(width, raw_width)
    module.launch("attend", grid, tiling.threads, shared, arguments)
    return over


def attend_prepared_or_raw(
    raw: RawTerms,
    value_BSD: Tensor,
    scope: Scope,
    dropout: Dropout,
    *,
    over: tuple[Tensor, Tensor] | None = None,
    beyond: Beyond | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend from raw or prepared terms, whichever is quicker."""
    count, num_queries, _ = raw.sizes
    prepared: RawTerms | PreparedInputs = raw
    tiling = tiling_to_attend_raw(raw.query, raw.key, value_BSD)
    if tiling is None:
        prepared = prepare(*raw, beyond=beyond)
        tiling = tiling_to_attend(count, num_queries, value_BSD.shape[-1])
        assert tiling is not None
    return attend(prepared, value_BSD, scope, dropout, tiling, over=over, beyond=beyond)
