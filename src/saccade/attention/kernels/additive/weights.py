"""Additive attention with its weights [B, T, S] as a tensor: softmax and its gradient row by row, and an operator.

Where the weights are no larger than what is given anyway, the operator keeps them for the backward pass.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from saccade.attention.kernels.additive import fractions as cuda
from saccade.attention.kernels.additive import sources
from saccade.attention.kernels.additive.gradient import gradients
from saccade.attention.kernels.additive.scope import NO_OPTION_GRADIENTS, AdditiveInputs, Dropout, Scope, ScopePart
from saccade.ops.kernels import nvrtc
from saccade.ops.kernels.launch import fork_stream
from saccade.ops.kernels.nvrtc import pointer
from saccade.ops.operator import operator, restore, save

FILES = (*cuda.BASE, *sources("additive_softmax.cu"))
ROW_THREADS, HELD = 128, 8  # of a block there, and numbers of a thread
ROW_LANES = (8, 32, ROW_THREADS)  # threads of a row: as few as hold it, else all


def weights_and_gradient(score_BTS: Tensor, g_BTS: Tensor, masked: ScopePart, dtype: torch.dtype) -> Tensor:
    """Return the weights after dropout, in `dtype`; replace the weights' gradient in `g_BTS` by the scores'."""
    weight = score_BTS.new_empty(score_BTS.shape, dtype=dtype)
    structs = [masked.scope.struct(), masked.dropout.struct()]
    first = [ctypes.c_int(masked.first_n), ctypes.c_int(masked.first_t)]
    _launch_rows("weights_and_gradient", [score_BTS, g_BTS, weight], structs, dtype, *first)
    return weight


def softmax(score_BTS: Tensor, scope: Scope, dropout: Dropout, dtype: torch.dtype) -> Tensor:
    """Replace scores by weights, in place; return them after dropout, in `dtype`."""
    weight = _weights_like(score_BTS, dropout, dtype)
    tensors = [score_BTS, None if weight is score_BTS else weight]
    _launch_rows("softmax", tensors, [scope.struct(), dropout.struct()], dtype)
    return weight


def softmax_backward(a_BTS: Tensor, g_BTS: Tensor, dropout: Dropout, dtype: torch.dtype) -> Tensor:
    """Replace the weights' gradient in `g_BTS` by the scores'; return the weights after dropout."""
    weight = _weights_like(a_BTS, dropout, dtype)
    _launch_rows("softmax_backward", [a_BTS, g_BTS, None if weight is a_BTS else weight], [dropout.struct()], dtype)
    return weight


def _weights_like(a_BTS: Tensor, dropout: Dropout, dtype: torch.dtype) -> Tensor:
    return a_BTS if dtype == torch.float32 and not dropout.share else torch.empty_like(a_BTS, dtype=dtype)


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
    """Multiply two batches of matrices; the product is float32 whatever they are."""
    if a.dtype == torch.float32:
        return a @ b
    if a.device.type == "cuda":
        return torch.bmm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def _kept_shapes(given: AdditiveInputs) -> tuple[Tensor, Tensor]:
    shape, num_keys = given.query_BTA.shape[:2], given.key_BSA.shape[1]
    weight = given.v_BA.new_empty(*shape, num_keys, dtype=torch.float32)
    return given.value_BSD.new_empty(*shape, given.value_BSD.shape[-1]), weight


@operator("saccade::additive_attention_kept", shapes=_kept_shapes)
def kept_attention(given: AdditiveInputs) -> tuple[Tensor, Tensor]:
    """Compute softmax(v·tanh(q_t + k_s)) values, [B, T, D], and the weights before dropout [B, T, S] (float32)."""
    query_BTA, key_BSA, v_BA, value_BSD, *_ = given
    scope, dropout = given.scope, given.dropout
    if (tiling := cuda.tiling_to_attend_raw(query_BTA, key_BSA, value_BSD)) is not None:
        a = v_BA.new_empty(*query_BTA.shape[:2], key_BSA.shape[1])
        return cuda.attend(cuda.RawTerms(query_BTA, key_BSA, v_BA), value_BSD, scope, dropout, tiling, kept=a)[0], a
    with torch.autocast(query_BTA.device.type, enabled=False):
        a = cuda.scores(cuda.prepare(query_BTA, key_BSA, v_BA))
        return torch.bmm(softmax(a, scope, dropout, value_BSD.dtype), value_BSD), a


def gradient_shapes(*given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return empty gradients for query, key, v and value."""
    query, key, v, value, *_ = given[-1]
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(v), torch.empty_like(value)


@operator("saccade::additive_attention_kept_backward", shapes=gradient_shapes)
def kept_backward(grad_BTD: Tensor, a_BTS: Tensor, given: AdditiveInputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients for query, key, v and value."""
    query_BTA, key_BSA, v_BA, value_BSD, *_ = given
    with torch.autocast(query_BTA.device.type, enabled=False):
        grad_BTD = grad_BTD.contiguous()
        g = wide_product(grad_BTD, value_BSD.mT)
        weight = softmax_backward(a_BTS, g, given.dropout, value_BSD.dtype)
        query, key, value = (torch.empty_like(x) for x in (query_BTA, key_BSA, value_BSD))
        launch, of_v = gradients(query_BTA, key_BSA, v_BA, g, query, key)
        with fork_stream(g.device) as beside:
            with beside:
                launch()
            torch.bmm(weight.mT, grad_BTD, out=value)
        return query, key, of_v, value


def _keep(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    save(ctx, output[1], *AdditiveInputs(*inputs)._replace(mask=None))  # the weights know the mask
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: FunctionCtx, grad: Tensor | None, unused: Tensor | None) -> tuple[Tensor | None, ...]:
    del unused
    if grad is None:
        return (None,) * len(AdditiveInputs._fields)
    return (*kept_backward(grad, *restore(ctx)), *NO_OPTION_GRADIENTS)


kept_attention.register_autograd(_differentiate, setup_context=_keep)
