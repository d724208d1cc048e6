"""Additive attention of one query at a time, as a recurrent decoder asks: a block of threads for each, one kernel."""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.dropout import drawn_seed
from saccade.attention.kernels import native
from saccade.attention.kernels.additive_cuda import INPUTS, SHARED_LIMIT
from saccade.attention.kernels.native import pointer
from saccade.attention.kernels.scope import Dropout, Scope, scope_of
from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Additive

REASON = "there is one query: score, softmax and weighted sum are one small kernel"
FILES = ("device.cuh", "additive_single.cu")
THREADS = 256


def refuses(call: Call) -> str | None:
    """Why this call can't run here."""
    if not isinstance(call.score, Additive):
        return "the score is not additive"
    if call.num_queries != 1:
        return "there is more than one query"
    if not isinstance(call.normalizer, Softmax):
        return "the normalizer is not softmax"
    if call.bias is not None or call.mask.factor is not None:
        return "a bias or a mask that weighs its keys was given"
    if call.query.dtype not in INPUTS or not math.prod(call.leading):
        return f"it takes float32, bfloat16 and float16 and at least one row, not {call.query.dtype}"
    if _shared(call.num_keys, call.score.v.shape[-1], call.value.shape[-1]) > SHARED_LIMIT:
        return "the keys don't fit its shared memory"
    return native.refuses(call.query.device)


def run(call: Call) -> Attended:
    """Project, fold the leading axes, attend; the weights come with it."""
    assert isinstance(call.score, Additive)
    leading, count = call.leading, math.prod(call.leading)
    projected = call.score.project(call.query)
    query, key, value = (
        tensor.to(projected.dtype).expand(*leading, -1, -1).reshape(count, *tensor.shape[-2:]).contiguous()
        for tensor in (projected, call.memory, call.value)
    )
    v = call.score.v.float()
    v = v.unsqueeze(0) if v.dim() == 1 else v.expand(*leading, -1).reshape(count, -1).contiguous()
    seed = drawn_seed(query.device) if call.dropout else None
    scope = scope_of(call)
    output, weight = additive_single(
        query, key, v, value, scope.mask, scope.low, scope.high, scope.inner, call.dropout, seed
    )
    weights = weight.view(*leading, 1, -1).to(projected.dtype) if call.wants_weights else None
    return Attended(output.view(*leading, 1, -1), weights)


@torch.library.custom_op("saccade::additive_single", mutates_args=())
def additive_single(
    query_N1A: Tensor,
    key_NSA: Tensor,
    v: Tensor,
    value_NSD: Tensor,
    mask: Tensor | None,
    low: int | None,
    high: int | None,
    inner: int,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """softmax(v·tanh(q + k_s)) values, [N, 1, D], and the weights before dropout [N, S] (float32). v: [N or 1, A]."""
    count, num_keys, width = key_NSA.shape
    value_width = value_NSD.shape[-1]
    output, weight = value_NSD.new_empty(count, 1, value_width), v.new_empty(count, num_keys)
    tensors = [pointer(x) for x in (query_N1A, key_NSA, v, value_NSD)]
    structs = [Scope(low, high, mask, inner).allowed(), Dropout(dropout, seed).drawing()]
    sizes = [ctypes.c_int(x) for x in (num_keys, width, value_width, _stride(v))]
    module = native.load(FILES, {"INPUT": INPUTS[value_NSD.dtype]}, value_NSD.device)
    arguments = [*tensors, *structs, pointer(output), pointer(weight), *sizes]
    module.launch("step", (count, 1, 1), THREADS, _shared(num_keys, width, value_width), arguments)
    return output, weight


@additive_single.register_fake
def _(query_N1A: Tensor, key_NSA: Tensor, v: Tensor, value_NSD: Tensor, *options: object) -> tuple[Tensor, Tensor]:
    del query_N1A, options
    count, num_keys = key_NSA.shape[:2]
    return value_NSD.new_empty(count, 1, value_NSD.shape[-1]), v.new_empty(count, num_keys)


@torch.library.custom_op("saccade::additive_single_backward", mutates_args=())
def additive_single_backward(
    grad_N1D: Tensor,
    grad_weight_NS: Tensor | None,
    weight_NS: Tensor,
    query_N1A: Tensor,
    key_NSA: Tensor,
    v: Tensor,
    value_NSD: Tensor,
    mask: Tensor | None,
    low: int | None,
    high: int | None,
    inner: int,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients for query, key, v and value."""
    count, num_keys, width = key_NSA.shape
    value_width = value_NSD.shape[-1]
    of_query, of_key, of_value = (torch.empty_like(x) for x in (query_N1A, key_NSA, value_NSD))
    of_v = v.new_empty(count, width)
    grad_N1D = grad_N1D.contiguous()
    grad_weight_NS = None if grad_weight_NS is None else grad_weight_NS.contiguous()
    inputs = (grad_N1D, grad_weight_NS, query_N1A, key_NSA, v, value_NSD, weight_NS)
    structs = [Scope(low, high, mask, inner).allowed(), Dropout(dropout, seed).drawing()]
    outputs = [pointer(x) for x in (of_query, of_key, of_v, of_value)]
    sizes = [ctypes.c_int(x) for x in (num_keys, width, value_width, _stride(v))]
    module = native.load(FILES, {"INPUT": INPUTS[value_NSD.dtype]}, value_NSD.device)
    arguments = [*(pointer(x) for x in inputs), *structs, *outputs, *sizes]
    shared = _shared(num_keys, width, value_width)
    module.launch("step_backward", (count, 1, 1), THREADS, shared, arguments)
    return of_query, of_key, of_v.sum(0, keepdim=True) if v.shape[0] < count else of_v, of_value


@additive_single_backward.register_fake
def _(
    grad_N1D: Tensor,
    grad_weight_NS: Tensor | None,
    weight_NS: Tensor,
    query_N1A: Tensor,
    key_NSA: Tensor,
    v: Tensor,
    value_NSD: Tensor,
    *options: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del grad_N1D, grad_weight_NS, weight_NS, options
    query, key, of_v, value = (torch.empty_like(x) for x in (query_N1A, key_NSA, v, value_NSD))
    return query, key, of_v, value


def _stride(v: Tensor) -> int:
    return v.shape[-1] if v.shape[0] > 1 else 0


def _shared(num_keys: int, width: int, value_width: int) -> int:
    """Bytes: forward the query, v and the weights; backward the gradients of scores and output; scratch."""
    return 4 * (num_keys + THREADS + max(2 * width, value_width))


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, v, value, mask, low, high, inner, dropout, seed = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], query, key, v, value, mask, seed)  # type: ignore[arg-type]
    ctx.options = (low, high, inner, dropout)  # type: ignore[attr-defined]


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor | None, grad_weight: Tensor | None
) -> tuple[Tensor | None, ...]:
    weight, *tensors, mask, seed = ctx.saved_tensors  # type: ignore[attr-defined]
    low, high, inner, dropout = ctx.options  # type: ignore[attr-defined]
    if grad is None:
        value = tensors[3]
        grad = value.new_zeros(value.shape[0], 1, value.shape[-1])
    options = (mask, low, high, inner, dropout, seed)
    gradients = additive_single_backward(grad, grad_weight, weight, *tensors, *options)
    return (*gradients, None, None, None, None, None, None)


additive_single.register_autograd(_differentiate, setup_context=_save)
