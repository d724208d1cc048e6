"""Additive attention with its weights [N, T, S] as a tensor: softmax and its gradient row by row, and an operator.

Where the weights are no larger than what is given anyway, the operator keeps them for the backward pass.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from saccade.attention.kernels.additive import fractions as cuda
from saccade.attention.kernels.additive import sources
from saccade.attention.kernels.additive.gradient import gradients
from saccade.attention.kernels.additive.scope import Dropout, Masked, Scope
from saccade.ops.kernels import nvrtc
from saccade.ops.kernels.launch import forked
from saccade.ops.kernels.nvrtc import pointer

FILES = (*cuda.BASE, *sources("additive_softmax.cu"))
ROW_THREADS, HELD = 128, 8  # of a block there, and numbers of a thread
ROW_LANES = (8, 32, ROW_THREADS)  # threads of a row: as few as hold it, else all


def weights_and_gradient(score_NTS: Tensor, g_NTS: Tensor, masked: Masked, dtype: torch.dtype) -> Tensor:
    """The weights as they met the values, in `dtype`; in `g_NTS` the gradient of the weights becomes the scores'."""
    weight = score_NTS.new_empty(score_NTS.shape, dtype=dtype)
    structs = [masked.scope.allowed(), masked.dropout.drawing()]
    first = [ctypes.c_int(masked.first_n), ctypes.c_int(masked.first_t)]
    _launch_rows("weights_and_gradient", [score_NTS, g_NTS, weight], structs, dtype, *first)
    return weight


def softmax(score_NTS: Tensor, scope: Scope, dropout: Dropout, dtype: torch.dtype) -> Tensor:
    """Scores become weights, in place; returned as they meet the values, in `dtype`."""
    weight = _met(score_NTS, dropout, dtype)
    tensors = [score_NTS, None if weight is score_NTS else weight]
    _launch_rows("softmax", tensors, [scope.allowed(), dropout.drawing()], dtype)
    return weight


def softmax_backward(a_NTS: Tensor, g_NTS: Tensor, dropout: Dropout, dtype: torch.dtype) -> Tensor:
    """In `g_NTS` the gradient of the weights becomes the scores'; returns the weights as they met the values."""
    weight = _met(a_NTS, dropout, dtype)
    _launch_rows("softmax_backward", [a_NTS, g_NTS, None if weight is a_NTS else weight], [dropout.drawing()], dtype)
    return weight


def _met(a_NTS: Tensor, dropout: Dropout, dtype: torch.dtype) -> Tensor:
    return a_NTS if dtype == torch.float32 and not dropout.share else torch.empty_like(a_NTS, dtype=dtype)


def _launch_rows(
    name: str, tensors: list[Tensor | None], structs: list[ctypes.Structure], dtype: torch.dtype, *more: ctypes.c_int
) -> None:
    assert tensors[0] is not None
    count, num_queries, num_keys = tensors[0].shape
    lanes = next((lanes for lanes in ROW_LANES if lanes * HELD >= num_keys), ROW_THREADS)
    defines = {"INPUT": cuda.INPUTS[dtype], "LANES": lanes}
    module = nvrtc.load(FILES, defines, tensors[0].device)
    sizes = [ctypes.c_int(num_queries), ctypes.c_int(num_keys)]
    grid = (-(-num_queries * lanes // ROW_THREADS), count, 1)
    module.launch(name, grid, ROW_THREADS, 64, [*(pointer(x) for x in tensors), *structs, *sizes, *more])


def wide_product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, whatever they are stored in."""
    if a.dtype == torch.float32:
        return a @ b
    if a.device.type == "cuda":
        return torch.bmm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


@torch.library.custom_op("saccade::additive_attention_kept", mutates_args=())
def kept_attention(
    query_NTA: Tensor,
    key_NSA: Tensor,
    v_NA: Tensor,
    value_NSD: Tensor,
    mask: Tensor | None,
    low: int | None,
    high: int | None,
    inner: int,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """softmax(v·tanh(q_t + k_s)) values, [N, T, D], and the weights before dropout [N, T, S] (float32)."""
    scope, drop = Scope(low, high, mask, inner), Dropout(dropout, seed)
    if (tiling := cuda.tiling_to_attend_raw(query_NTA, key_NSA, value_NSD)) is not None:
        a = v_NA.new_empty(*query_NTA.shape[:2], key_NSA.shape[1])
        return cuda.attend(cuda.RawTerms(query_NTA, key_NSA, v_NA), value_NSD, scope, drop, tiling, kept=a)[0], a
    with torch.autocast(query_NTA.device.type, enabled=False):
        a = cuda.scores(cuda.prepare(query_NTA, key_NSA, v_NA))
        return torch.bmm(softmax(a, scope, drop, value_NSD.dtype), value_NSD), a


@kept_attention.register_fake
def _(query: Tensor, key: Tensor, v: Tensor, value: Tensor, *options: object) -> tuple[Tensor, Tensor]:
    del options
    shape = query.shape[:2]
    return value.new_empty(*shape, value.shape[-1]), v.new_empty(*shape, key.shape[1], dtype=torch.float32)


@torch.library.custom_op("saccade::additive_attention_kept_backward", mutates_args=())
def kept_backward(
    grad_NTD: Tensor,
    a_NTS: Tensor,
    query_NTA: Tensor,
    key_NSA: Tensor,
    v_NA: Tensor,
    value_NSD: Tensor,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients for query, key, v and value."""
    with torch.autocast(query_NTA.device.type, enabled=False):
        grad_NTD = grad_NTD.contiguous()
        g = wide_product(grad_NTD, value_NSD.mT)
        weight = softmax_backward(a_NTS, g, Dropout(dropout, seed), value_NSD.dtype)
        query, key, value = (torch.empty_like(x) for x in (query_NTA, key_NSA, value_NSD))
        launch, of_v = gradients(query_NTA, key_NSA, v_NA, g, query, key)
        with forked(g.device) as beside:
            with beside:
                launch()
            torch.bmm(weight.mT, grad_NTD, out=value)
        return query, key, of_v, value


@kept_backward.register_fake
def _(
    grad: Tensor, a: Tensor, query: Tensor, key: Tensor, v: Tensor, value: Tensor, *options: object
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del grad, a, options
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(v), torch.empty_like(value)


def _save_kept(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]
) -> None:
    query, key, v, value, _, _, _, _, dropout, seed = inputs
    ctx.save_for_backward(output[1], query, key, v, value, seed)  # type: ignore[arg-type]
    ctx.dropout = dropout  # type: ignore[attr-defined]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate_kept(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor | None, unused: Tensor | None
) -> tuple[Tensor | None, ...]:
    del unused
    if grad is None:
        return (None,) * 10
    *tensors, seed = ctx.saved_tensors  # type: ignore[attr-defined]
    found = kept_backward(grad, *tensors, ctx.dropout, seed)  # type: ignore[attr-defined]
    return (*found, None, None, None, None, None, None)


kept_attention.register_autograd(_differentiate_kept, setup_context=_save_kept)
