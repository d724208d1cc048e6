"""Additive attention of one query at a time, as a recurrent decoder needs it: one kernel, and one for W q."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from saccade.attention.call import Attended, Call
from saccade.attention.kernels.additive import sources
from saccade.attention.kernels.additive.fractions import INPUTS, SHARED_LIMIT
from saccade.attention.kernels.additive.project import ONE_EACH, project
from saccade.attention.kernels.additive.scope import (
    NO_OPTION_GRADIENTS,
    AdditiveInputs,
    Allowed,
    Drawing,
    Dropout,
    Scope,
    scope_of,
)
from saccade.attention.kernels.additive.weights import gradient_shapes
from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Additive
from saccade.ops.kernels import nvrtc
from saccade.ops.kernels.nvrtc import pointer
from saccade.ops.operator import operator, restore, save
from saccade.ops.pass_context import draw_seed

REASON = "there is one query: score, softmax and weighted sum are one small kernel"
FILES = sources("device.cuh", "additive_single.cu", "additive_project.cu", "additive_single_backward.cu")
THREADS, FORWARD_THREADS = 256, 512  # as in additive_single_backward.cu and additive_single.cu
MOST_SHARERS, LEAST_COLUMNS = 4, 64  # blocks that share an entry, as there; columns of the values for each
MOST_SPAN, MANY_KEYS = 256, 1024  # threads that share a key; with more keys than that, a warp

_SIZES = ("num_keys", "width", "value_width", "v_stride", "v_is_wide", "parts", "joined", "span")
_DEFINES = {dtype: {"INPUT": number} for dtype, number in INPUTS.items()}
_ANY_KEY, _NO_DROPOUT = Scope().struct(), Dropout().struct()


class _Step(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "v", "length", "output", "weight")),
        *((name, ctypes.c_int) for name in _SIZES),
        ("allowed", Allowed),
        ("drawing", Drawing),
    ]


def refuses(call: Call) -> str | None:
    """Return why the kernel can't run this call, or None."""
    if not isinstance(call.score, Additive):
        return "the score is not additive"
    if call.num_queries != 1:
        return "there is more than one query"
    if not isinstance(call.normalizer, Softmax):
        return "the normalizer is not softmax"
    if call.bias is not None or call.mask.factor is not None:
        return "a bias or a mask that weighs its keys was given"
    if call.query.dtype not in INPUTS or not math.prod(call.leading) or not call.value.shape[-1]:
        return f"it takes float32, bfloat16 and float16, a row and values of some width, not {call.query.dtype}"
    if _shared_bytes(call.num_keys, call.score.v.shape[-1], call.value.shape[-1]) > SHARED_LIMIT:
        return "the keys don't fit its shared memory"
    return nvrtc.refuses(call.query.device)


def run(call: Call) -> Attended:
    """Project, fold the leading axes, attend; the kernel also writes the weights."""
    assert isinstance(call.score, Additive)
    if is_plain(call):
        return at_once(call)
    leading, count = call.leading, math.prod(call.leading)
    asked = call.score.project(call.query)
    query, key, value = (
        tensor.to(asked.dtype).expand(*leading, -1, -1).reshape(count, *tensor.shape[-2:]).contiguous()
        for tensor in (asked, call.memory, call.value)
    )
    v = call.score.v.float()
    v = v.unsqueeze(0) if v.dim() == 1 else v.expand(*leading, -1).reshape(count, -1).contiguous()
    seed = draw_seed(query.device) if call.dropout else None
    scope = scope_of(call)
    output, weight = additive_single(
        query, key, v, value, scope.mask, scope.low, scope.high, scope.inner, call.dropout, seed
    )
    weights = weight.view(*leading, 1, -1).to(asked.dtype) if call.wants_weights else None
    return Attended(output.view(*leading, 1, -1), weights)


def is_plain(call: Call) -> bool:
    """Return True if no gradient, compiler or tracer wants the step: an operator would cost more than its kernel."""
    score, mask, (query, memory, value) = call.score, call.mask, (call.query, call.memory, call.value)
    assert isinstance(score, Additive)
    length = mask.length
    is_known = mask.is_full or (length is not None and length.dtype == torch.int64 and length.device == query.device)
    if score.heads or call.dropout or not is_known:
        return False
    if not (type(query) is type(memory) is type(value) is Tensor and query.dtype == memory.dtype == value.dtype):
        return False
    if not (query.shape[:-2] == memory.shape[:-2] == value.shape[:-2]):
        return False
    weight, v = score.W, score.v  # each a search through the module
    if not (query.is_contiguous() and memory.is_contiguous() and value.is_contiguous() and v.is_contiguous()):
        return False
    if torch.is_grad_enabled() and any(x.requires_grad for x in (query, memory, value, weight, v)):
        return False
    return not (torch.compiler.is_compiling() or torch.is_autocast_enabled(query.device.type))


def pays(call: Call) -> bool:
    """Return True if a plain step is quickest here: in a captured graph, a Triton kernel is quicker for many rows."""
    query = call.query
    is_few = query.numel() <= ONE_EACH * query.shape[-1]
    return is_few or query.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def at_once(call: Call) -> Attended:
    """Launch two kernels, one behind the other, and do nothing else on the host."""
    score, query, memory, value, length = call.score, call.query, call.memory, call.value, call.mask.length
    assert isinstance(score, Additive)
    dtype, leading, (num_keys, width), value_width = query.dtype, query.shape[:-2], memory.shape[-2:], value.shape[-1]
    module = nvrtc.load(FILES, _DEFINES[dtype], query.device)
    output, weight = query.new_empty((*leading, 1, value_width)), None
    if call.wants_weights:
        weight = query.new_empty((*leading, 1, num_keys), dtype=torch.float32)
    if length is not None and (length.shape != leading or not length.is_contiguous()):
        length = length.view(*length.shape, *(1,) * (len(leading) - length.dim())).expand(leading).contiguous()
    v: Tensor = score.v
    if v.dtype != dtype:
        v = v.float()
    made, parts = project(query, score.W, module)
    plan = _plan_of(memory, value, math.prod(leading), module)
    step = _Step(
        made.data_ptr(),
        memory.data_ptr(),
        value.data_ptr(),
        v.data_ptr(),
        None if length is None else length.data_ptr(),
        output.data_ptr(),
        None if weight is None else weight.data_ptr(),
        num_keys,
        width,
        value_width,
        0,
        v.dtype == torch.float32,
        parts,
        plan.cluster > 1,
        plan.span,
        _ANY_KEY,
        _NO_DROPOUT,
    )
    turn = nvrtc.Turn.SECOND if parts else nvrtc.Turn.ALONE
    module.launch(plan.kernel, plan.grid, FORWARD_THREADS, plan.shared, (step,), turn, plan.cluster)
    return Attended(output, None if weight is None else weight.to(dtype))


class _Plan(NamedTuple):
    """Launch settings of a step: blocks of an entry, as a cluster or not, and the threads that share a key."""

    kernel: str
    grid: tuple[int, int, int]
    cluster: int
    span: int
    shared: int


def _plan_of(key_BSA: Tensor, value_BSD: Tensor, count: int, module: nvrtc.Module) -> _Plan:
    """Plan a launch; where keys and values lie decides, too, whether a block has them in shared memory."""
    lies_well = not (key_BSA.data_ptr() | value_BSD.data_ptr()) % 16
    sizes = (count, *key_BSA.shape[-2:], value_BSD.shape[-1], key_BSA.itemsize)
    return _plan(*sizes, lies_well, module.has_clusters)


@functools.lru_cache(1024)
def _plan(
    count: int, num_keys: int, width: int, value_width: int, itemsize: int, lies_well: bool, has_clusters: bool
) -> _Plan:
    quads = -(-value_width // 4)
    most = max(1, min(ONE_EACH // count, MOST_SHARERS, value_width // LEAST_COLUMNS))
    sharers = -(-quads // -(-quads // most))
    cluster = sharers if has_clusters else 1
    shared, of_keys = _forward_bytes(num_keys, width), -(-num_keys // cluster) * width * itemsize
    # where others wait for a multiprocessor, they'd wait longer
    holds = lies_well and count <= ONE_EACH and not (width % 4 or value_width % 4) and shared + of_keys <= SHARED_LIMIT
    kernel, shared = ("step_beside", shared + of_keys) if holds else ("step", shared)
    return _Plan(kernel, (count, sharers, 1), cluster, _span(num_keys, width), shared)


def _output_shapes(given: AdditiveInputs) -> tuple[Tensor, Tensor]:
    count, num_keys = given.key_BSA.shape[:2]
    return given.value_BSD.new_empty(count, 1, given.value_BSD.shape[-1]), given.v_BA.new_empty(count, num_keys)


@operator("saccade::additive_single", shapes=_output_shapes)
def additive_single(given: AdditiveInputs) -> tuple[Tensor, Tensor]:
    """Compute softmax(v·tanh(q + k_s)) values, [B, 1, D], and the weights before dropout [B, S] (float32)."""
    query_B1A, key_BSA, v, value_BSD, *_ = given
    count, num_keys, width = key_BSA.shape
    value_width = value_BSD.shape[-1]
    output, weight = _output_shapes(given)
    tensors = [pointer(x) for x in (query_B1A, key_BSA, value_BSD, v, None, output, weight)]
    module = nvrtc.load(FILES, _DEFINES[value_BSD.dtype], value_BSD.device)
    plan = _plan_of(key_BSA, value_BSD, count, module)
    sizes = (num_keys, width, value_width, _stride(v), 1, 0, plan.cluster > 1, plan.span)  # in the order of _SIZES
    step = _Step(*tensors, *sizes, given.scope.struct(), given.dropout.struct())
    module.launch(plan.kernel, plan.grid, FORWARD_THREADS, plan.shared, [step], cluster=plan.cluster)
    return output, weight


@operator("saccade::additive_single_backward", shapes=gradient_shapes)
def additive_single_backward(
    grad_B1D: Tensor, grad_weight_BS: Tensor | None, weight_BS: Tensor, given: AdditiveInputs
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients for query, key, v and value."""
    query_B1A, key_BSA, v, value_BSD, *_ = given
    count, num_keys, width = key_BSA.shape
    value_width = value_BSD.shape[-1]
    of_query, of_key, of_value = (torch.empty_like(x) for x in (query_B1A, key_BSA, value_BSD))
    of_v = v.new_empty(count, width)
    grad_B1D = grad_B1D.contiguous()
    grad_weight_BS = None if grad_weight_BS is None else grad_weight_BS.contiguous()
    inputs = (grad_B1D, grad_weight_BS, query_B1A, key_BSA, v, value_BSD, weight_BS)
    structs = [given.scope.struct(), given.dropout.struct()]
    outputs = [pointer(x) for x in (of_query, of_key, of_v, of_value)]
    sizes = [ctypes.c_int(x) for x in (num_keys, width, value_width, _stride(v))]
    module = nvrtc.load(FILES, _DEFINES[value_BSD.dtype], value_BSD.device)
    arguments = [*(pointer(x) for x in inputs), *structs, *outputs, *sizes]
    shared = _shared_bytes(num_keys, width, value_width)
    module.launch("step_backward", (count, 1, 1), THREADS, shared, arguments)
    return of_query, of_key, of_v.sum(0, keepdim=True) if v.shape[0] < count else of_v, of_value


def _stride(v: Tensor) -> int:
    return v.shape[-1] if v.shape[0] > 1 else 0


def _shared_bytes(num_keys: int, width: int, value_width: int) -> int:
    """Count the bytes of the larger pass; the backward pass holds the gradients of scores and output, and scratch."""
    return max(4 * (num_keys + THREADS + value_width), _forward_bytes(num_keys, width))


def _forward_bytes(num_keys: int, width: int) -> int:
    """Count the bytes of the query, v, sums of four columns a thread, parts of scores and weights; without the keys."""
    rows = 1 + _span(num_keys, width) // 32
    return 16 * (2 * -(-width // 4) + FORWARD_THREADS + -(-rows * num_keys // 4))


def _span(num_keys: int, width: int) -> int:
    """Choose how many threads share a key, in whole warps, each with four dimensions at a time."""
    if num_keys > MANY_KEYS:
        return 32
    quads = -(-width // 4)
    return -(-quads // (32 * -(-quads // MOST_SPAN))) * 32


def _keep(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    save(ctx, output[1], *inputs)


def _differentiate(ctx: FunctionCtx, grad: Tensor | None, grad_weight: Tensor | None) -> tuple[Tensor | None, ...]:
    weight, *inputs = restore(ctx)
    if grad is None:
        value = AdditiveInputs(*inputs).value_BSD
        grad = value.new_zeros(value.shape[0], 1, value.shape[-1])
    return (*additive_single_backward(grad, grad_weight, weight, *inputs), *NO_OPTION_GRADIENTS)


additive_single.register_autograd(_differentiate, setup_context=_keep)
