"""The additive score in tiles that fit the cache: e_ts = sum_d v_d tanh(q_td + k_sd), never all T x S x D at once.

On a CPU the hyperbolic tangent costs about twenty times a division. It separates:

    tanh(q + k) = 1 - 2 r,  r = 1 / (1 + exp(2q) exp(2k)),  d tanh = 4 (r - r²)

so the exponentials are taken once per query and once per key, and a term costs one multiply-add and one
reciprocal. Where |q| or |k| is so large that an exponential could overflow on its way (or isn't a number), the
tiles compute tanh itself. The backward pass computes each tile again instead of keeping it. On an NVIDIA
device `fused` and `fractions` do the same in CUDA C++ (docs/additive.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.kernels.additive import fractions, fused, gradient, single
from saccade.attention.reference import reference
from saccade.attention.scores import Additive
from saccade.ops.kernels import nvrtc
from saccade.ops.precision import widen

REASON = "the additive score is computed in tiles that fit the cache"
TILE_ELEMENTS = {"cpu": 1 << 19}  # 2 MiB of float32: what two cores' second-level caches hold
ACCELERATOR_TILE_ELEMENTS = 1 << 26
TILE_KEYS = 256
FEW_TERMS = 1 << 16


def refuses(call: Call) -> str | None:
    """Return why the kernel can't run this call, or None."""
    if not isinstance(call.score, Additive):
        return "the score is not additive"
    return None


def pays(call: Call) -> bool:
    """Return True if the call has more than a handful of terms, which the plain equation computes sooner."""
    assert isinstance(call.score, Additive)
    terms = math.prod(call.leading) * call.num_queries * call.num_keys * call.score.v.shape[-1]
    return terms > FEW_TERMS


def run(call: Call) -> Attended:
    """Run one kernel where there is one; else the tiled score, then mask, normaliser and weighted sum as everywhere."""
    assert isinstance(call.score, Additive)
    if single.refuses(call) is None:
        return single.run(call)
    if fused.refuses(call) is None:
        return fused.run(call)
    return reference(call, score=partial(_score, call.score, call.leading))


def _score(score: Additive, leading: tuple[int, ...], query: Tensor, memory: Tensor) -> Tensor:
    """Compute all scores in tiles, [*leading, T, S]."""
    query = score.project(query).expand(*leading, -1, -1)
    memory = memory.expand(*leading, -1, -1).to(query.dtype)
    v = score.v.to(query.dtype).expand(*leading, -1)
    count = math.prod(leading)
    score_BTS = additive_score(
        query.reshape(count, *query.shape[-2:]),
        memory.reshape(count, *memory.shape[-2:]),
        v.reshape(count, v.shape[-1]),
    )
    return score_BTS.view(*leading, *score_BTS.shape[-2:])


@torch.library.custom_op("saccade::additive_score", mutates_args=())
def additive_score(query_BTD: Tensor, key_BSD: Tensor, v_BD: Tensor) -> Tensor:
    """Compute e_ts = vᵀ tanh(q_t + k_s), [B, T, S]."""
    with torch.autocast(query_BTD.device.type, enabled=False):
        return _forward(query_BTD, key_BSD, v_BD)


@additive_score.register_fake
def _(query_BTD: Tensor, key_BSD: Tensor, v_BD: Tensor) -> Tensor:
    del v_BD
    return query_BTD.new_empty(*query_BTD.shape[:2], key_BSD.shape[1])


@torch.library.custom_op("saccade::additive_score_backward", mutates_args=())
def additive_score_backward(
    grad_BTS: Tensor, query_BTD: Tensor, key_BSD: Tensor, v_BD: Tensor, wants_query: bool, wants_key: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients for q, k and v; zeros for q, or for k and v, where they aren't wanted."""
    with torch.autocast(query_BTD.device.type, enabled=False):
        return _backward(grad_BTS, query_BTD, key_BSD, v_BD, wants_query, wants_key)


@additive_score_backward.register_fake
def _(
    grad_BTS: Tensor, query_BTD: Tensor, key_BSD: Tensor, v_BD: Tensor, wants_query: bool, wants_key: bool
) -> tuple[Tensor, Tensor, Tensor]:
    del grad_BTS, wants_query, wants_key
    return query_BTD.new_empty(query_BTD.shape), key_BSD.new_empty(key_BSD.shape), v_BD.new_empty(v_BD.shape)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    query, key, v = ctx.saved_tensors  # type: ignore[attr-defined]
    of_query, of_key, of_v = ctx.needs_input_grad  # type: ignore[attr-defined]
    gradients: tuple[Tensor, Tensor, Tensor] = additive_score_backward(grad, query, key, v, of_query, of_key or of_v)
    return gradients


additive_score.register_autograd(_differentiate, setup_context=_save)


class _Tiles(NamedTuple):
    """The two spellings of tanh, up to a line: tanh = intercept + slope * tile, tanh' = steepness * bend(tile)."""

    query: Tensor
    key: Tensor
    separated: bool

    @property
    def line(self) -> tuple[float, float]:
        return (1.0, -2.0) if self.separated else (0.0, 1.0)

    @property
    def steepness(self) -> float:
        return 4.0 if self.separated else 1.0

    def fill(self, tile: Tensor, b: slice, t: slice, s: slice) -> None:
        query, key = self.query[b, t, None], self.key[b, None, s]
        if self.separated:
            torch.addcmul(tile.new_ones(1), query, key, out=tile)
            tile.reciprocal_()
        else:
            torch.add(query, key, out=tile)
            tile.tanh_()

    def bend_(self, tile: Tensor) -> None:
        """Replace r by r - r², or tanh by 1 - tanh², in place."""
        if self.separated:
            tile.addcmul_(tile, tile, value=-1)
        else:
            tile.square_().neg_().add_(1)


def _is_native(query: Tensor) -> bool:
    sizes = 0 < query.shape[0] <= fused.LARGEST_GRID and query.shape[1] > 0
    return sizes and query.dtype in fractions.INPUTS and nvrtc.refuses(query.device) is None


def _forward(query_BTD: Tensor, key_BSD: Tensor, v_BD: Tensor) -> Tensor:
    if _is_native(query_BTD):
        inputs = (query_BTD.contiguous(), key_BSD.contiguous(), v_BD.float().contiguous())
        return fractions.scores(fractions.prepare(*inputs)).to(query_BTD.dtype)
    query, key, v = (widen(tensor) for tensor in (query_BTD, key_BSD, v_BD))
    tiles = _separate(query, key)
    score_BTS = query.new_empty(*query.shape[:2], key.shape[1])
    for tile, b, t, s in _tiling(query, key):
        tiles.fill(tile, b, t, s)
        dots = torch.bmm(tile.flatten(1, 2), v[b, :, None])
        score_BTS[b, t, s] = dots.view(tile.shape[:-1])
    intercept, slope = tiles.line
    return score_BTS.mul_(slope).add_(intercept * v.sum(-1)[:, None, None]).to(query_BTD.dtype)


def _backward(
    grad_BTS: Tensor, query_BTD: Tensor, key_BSD: Tensor, v_BD: Tensor, wants_query: bool, wants_key: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if _is_native(query_BTD):
        inputs = (query_BTD.contiguous(), key_BSD.contiguous(), v_BD.float().contiguous())
        of_query, of_key = (torch.empty_like(tensor) for tensor in inputs[:2])
        launch, of_v = gradient.gradients(*inputs, grad_BTS.float().contiguous(), of_query, of_key)
        launch()
        return of_query, of_key, of_v.to(v_BD.dtype)
    grad, query, key, v = (widen(tensor) for tensor in (grad_BTS, query_BTD, key_BSD, v_BD))
    tiles = _separate(query, key)
    grad_query, grad_key, grad_v = (torch.zeros_like(tensor) for tensor in (query, key, v))
    intercept, slope = tiles.line
    for tile, b, t, s in _tiling(query, key):
        tiles.fill(tile, b, t, s)
        rows = grad[b, t, s].unsqueeze(-2)  # [b, t, 1, s]: one product per query with [b, t, s, D]
        if wants_key:
            grad_v[b] += slope * (rows @ tile).sum((1, 2)) + intercept * rows.sum((1, 2, 3))[:, None]
        tiles.bend_(tile)
        if wants_query:
            grad_query[b, t] += (rows @ tile).squeeze(-2)
        if wants_key:
            tile.mul_(rows.mT)
            grad_key[b, s] += tile.sum(1)
    outer = tiles.steepness * v[:, None]
    gradients = (grad_query.mul_(outer), grad_key.mul_(outer), grad_v)
    inputs = (query_BTD, key_BSD, v_BD)
    return tuple(g.to(x.dtype) for g, x in zip(gradients, inputs, strict=True))  # type: ignore[return-value]


def _separate(query: Tensor, key: Tensor) -> _Tiles:
    """Return exponentials where they pay and can't overflow on their own, else the arguments themselves.

    With one query a key's exponential serves one pair: tanh takes no longer, and is the more exact.
    """
    limit = math.log(torch.finfo(query.dtype).max) / 2 - 1
    pays = query.device.type == "cpu" and query.numel() > 0 and query.shape[1] > 1
    if pays and query.abs().amax() <= limit and key.abs().amax() <= limit:
        return _Tiles((2 * query).exp_(), (2 * key).exp_(), separated=True)
    return _Tiles(query, key, separated=False)


def _tiling(query: Tensor, key: Tensor) -> Iterator[tuple[Tensor, slice, slice, slice]]:
    """Yield scratch tiles [b, t, s, D] over one buffer, with the slices they stand for."""
    (count, num_queries, width), num_keys = query.shape, key.shape[1]
    room = max(1, TILE_ELEMENTS.get(query.device.type, ACCELERATOR_TILE_ELEMENTS) // width)
    s_size = min(num_keys, TILE_KEYS, room)
    t_size = max(1, min(num_queries, room // s_size))
    b_size = max(1, min(count, room // (s_size * t_size)))
    buffer = query.new_empty(b_size * t_size * s_size * width)
    for b in _slices(count, b_size):
        for s in _slices(num_keys, s_size):
            for t in _slices(num_queries, t_size):
                shape = (b.stop - b.start, t.stop - t.start, s.stop - s.start, width)
                yield buffer[: math.prod(shape)].view(shape), b, t, s


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, length)) for start in range(0, length, size))
