"""Additive attention as one operator: score, mask, softmax, dropout, weighted sum, in O((T + S) D) memory.

Where the weights are no larger than what is given anyway (T S <= (T + S) (A + D)) and a gradient is wanted, they are
kept for it; else the backward pass computes scores again, a bounded number of pairs at a time (PAIRS).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from saccade.attention.call import Attended, Call
from saccade.attention.kernels.additive import fractions as cuda
from saccade.attention.kernels.additive.gradient import gradients
from saccade.attention.kernels.additive.scope import NO_OPTION_GRADIENTS, AdditiveInputs, ScopePart, scope_of
from saccade.attention.kernels.additive.weights import (
    gradient_shapes,
    kept_attention,
    weights_and_gradient,
    wide_product,
)
from saccade.attention.kernels.packed.unpack import unpack
from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Additive
from saccade.ops.kernels import nvrtc
from saccade.ops.operator import operator, restore, save
from saccade.ops.pass_context import draw_seed

REASON = "the additive score, softmax and the weighted sum are one kernel"
PAIRS = 1 << 24  # of queries and keys, whose scores the backward pass holds at a time
MANY_PAIRS = 1 << 16  # of an entry, all allowed: from here on a kernel for each part is quicker than one for all
LARGEST_GRID = 65_535
Operator = Callable[..., tuple[Tensor, Tensor]]


def refuses(call: Call) -> str | None:
    """Return why the kernel can't run this call, or None."""
    if not isinstance(call.score, Additive):
        return "the score is not additive"
    if not isinstance(call.normalizer, Softmax):
        return "the normalizer is not softmax"
    if call.wants_weights:
        return "the weights were asked for"
    if call.bias is not None:
        return "a bias was given"
    if call.mask.factor is not None:
        return "the mask weighs its keys (local_p)"
    return _refuses_sizes(call) or nvrtc.refuses(call.query.device)


def _refuses_sizes(call: Call) -> str | None:
    unpacked = unpack(call)
    count = math.prod(call.leading) * (
        1 if unpacked is None else unpacked.slots
    )  # each sentence is an entry of its own
    if call.query.dtype not in cuda.INPUTS:
        return f"it takes float32, bfloat16 and float16, not {call.query.dtype}"
    if not 0 < count <= LARGEST_GRID or not call.num_queries:
        return f"{count} x {call.num_queries} rows given; it takes 1 to {LARGEST_GRID} batch entries and heads"
    if cuda.tiling_to_attend(count, call.num_queries, call.value.shape[-1]) is None:
        return f"values of width {call.value.shape[-1]} don't fit its shared memory"
    return None


def run(call: Call, attend: Operator | None = None) -> Attended:
    """Project, fold the leading axes, attend (by another operator of the same kind, if one is given)."""
    assert isinstance(call.score, Additive)
    leading = call.leading
    heads_lead = len(call.score.heads) > 0 and len(leading) == 1 + len(call.score.heads)
    projected = call.score.project(call.query)
    query, key, value = (
        _fold(tensor.to(projected.dtype).expand(*leading, -1, -1), heads_lead)
        for tensor in (projected, call.memory, call.value)
    )
    v = _fold(call.score.v.float().unsqueeze(-2).expand(*leading, -1, -1), heads_lead).squeeze(-2)
    seed = draw_seed(query.device) if call.dropout else None
    unpacked = unpack(call)
    if unpacked is None:
        scope = scope_of(call).swap_axes(leading[0]) if heads_lead else scope_of(call)
    else:
        scope = unpacked.scope(*call.mask.band)
        query, key, value = unpacked.queries(query), unpacked.keys(key), unpacked.keys(value)
        v = v.repeat_interleave(unpacked.slots, 0)
    given = AdditiveInputs(query, key, v, value, scope.mask, scope.low, scope.high, scope.inner, call.dropout, seed)
    output, _ = (attend or attention)(*given)
    output = output if unpacked is None else unpacked.back(output)
    if heads_lead:
        return Attended(output.view(*leading[1:], leading[0], *output.shape[-2:]).movedim(-3, 0))
    return Attended(output.view(*leading, *output.shape[-2:]))


def _fold(x: Tensor, heads_lead: bool) -> Tensor:
    """Fold [*leading, T, D] to [B, T, D]; heads first, as a product with a matrix for each head leaves them."""
    count = math.prod(x.shape[:-2])
    return (x.movedim(0, -3) if heads_lead else x).reshape(count, *x.shape[-2:]).contiguous()


def attention(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Attend by the operator that is quicker; what it keeps for its backward pass comes second."""
    given = AdditiveInputs(*inputs)
    (_, num_queries, width), (_, num_keys, value_width) = given.query_BTA.shape, given.value_BSD.shape
    num_pairs, is_whole = num_queries * num_keys, given.mask is None and given.low is None and given.high is None
    is_learning = torch.is_grad_enabled() and any(x.requires_grad for x in given[:4])
    is_small = num_pairs <= (num_queries + num_keys) * (width + value_width)
    if is_small and (is_learning or (is_whole and num_pairs >= MANY_PAIRS)):
        return kept_attention(*given)
    return additive_attention(*given)


def output_shapes(given: AdditiveInputs) -> tuple[Tensor, Tensor]:
    """Return empty outputs: the weighted sums [B, T, D], and a number for each row [B, T]."""
    shape = given.query_BTA.shape[:2]
    return given.value_BSD.new_empty(*shape, given.value_BSD.shape[-1]), given.v_BA.new_empty(shape)


@operator("saccade::additive_attention", shapes=output_shapes)
def additive_attention(given: AdditiveInputs) -> tuple[Tensor, Tensor]:
    """Compute softmax(v·tanh(q_t + k_s)) values, [B, T, D], and the log-sums [B, T]."""
    raw = cuda.RawTerms(given.query_BTA, given.key_BSA, given.v_BA)
    return cuda.attend_prepared_or_raw(raw, given.value_BSD, given.scope, given.dropout)


@operator("saccade::additive_attention_backward", shapes=gradient_shapes)
def additive_attention_backward(grad_BTD: Tensor, given: AdditiveInputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients for query, key, v and value."""
    query_BTA, key_BSA, v_BA, value_BSD, *_ = given
    with torch.autocast(query_BTA.device.type, enabled=False):
        grad_BTD = grad_BTD.contiguous()
        prepared = cuda.prepare(query_BTA, key_BSA, v_BA)
        wide = [torch.empty_like(x, dtype=torch.float32) for x in (query_BTA, key_BSA, value_BSD)]
        of_query, of_key, of_value = wide
        of_v = torch.zeros_like(v_BA)
        for count, steps in parts(*prepared.sizes):
            masked = ScopePart(given.scope, given.dropout, count.start, steps.start)
            part, grad, values = prepared.part(count, steps), grad_BTD[count, steps], value_BSD[count]
            score = cuda.scores(part)
            g = wide_product(grad, values.mT)
            weight = weights_and_gradient(score, g, masked, values.dtype)
            again = steps.start > 0
            product = wide_product(weight.mT, grad)
            of_value[count] = of_value[count].add_(product) if again else product
            terms = (query_BTA[count, steps], key_BSA[count], v_BA[count], g)
            launch, more = gradients(*terms, of_query[count, steps], of_key[count], add=again)
            launch()
            of_v[count] += more
        types = (query_BTA.dtype, key_BSA.dtype, value_BSD.dtype)
        query, key, value = (tensor.to(dtype) for tensor, dtype in zip(wide, types, strict=True))
        return query, key, of_v, value


def parts(count: int, num_queries: int, num_keys: int) -> Iterator[tuple[slice, slice]]:
    """Yield whole batch entries, as many as PAIRS allow, or blocks of queries of one."""
    if num_queries * num_keys <= PAIRS:
        size = max(1, PAIRS // (num_queries * num_keys))
        for first in range(0, count, size):
            yield slice(first, min(first + size, count)), slice(0, num_queries)
        return
    steps = max(1, PAIRS // num_keys // cuda.ROWS) * cuda.ROWS
    for n in range(count):
        for first in range(0, num_queries, steps):
            yield slice(n, n + 1), slice(first, min(first + steps, num_queries))


def keep(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep the inputs alone for the backward pass."""
    save(ctx, *inputs)
    ctx.mark_non_differentiable(output[1])


def differentiate(ctx: FunctionCtx, grad: Tensor, unused: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients for query, key, v and value, and none for the options."""
    del unused
    return (*additive_attention_backward(grad, *restore(ctx)), *NO_OPTION_GRADIENTS)


additive_attention.register_autograd(differentiate, setup_context=keep)
