"""Additive attention as one operator: score, mask, softmax, dropout, weighted sum, in O((T + S) D) memory.

Where the weights are no larger than what is given anyway (T S <= (T + S) (A + D)) and a gradient is wanted, they are
kept for it; else the backward pass computes scores again, a bounded number of pairs at a time (PAIRS).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.kernels.additive import fractions as cuda
from saccade.attention.kernels.additive.gradient import gradients
from saccade.attention.kernels.additive.scope import Dropout, Masked, Scope, scope_of
from saccade.attention.kernels.additive.weights import kept_attention, weights_and_gradient, wide_product
from saccade.attention.kernels.packed.unpack import unpack
from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Additive
from saccade.ops.dropout import drawn_seed
from saccade.ops.kernels import nvrtc

REASON = "the additive score, softmax and the weighted sum are one kernel"
PAIRS = 1 << 24  # of queries and keys, whose scores the backward pass holds at a time
MANY_PAIRS = 1 << 16  # of an entry, all allowed: from here on a kernel for each part is quicker than one for all
LARGEST_GRID = 65_535
Operator = Callable[..., tuple[Tensor, Tensor]]


def refuses(call: Call) -> str | None:
    """Why this call can't run here."""
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


def run(call: Call, operator: Operator | None = None) -> Attended:
    """Project, fold the leading axes, attend (by another operator of the same kind, if one is given)."""
    assert isinstance(call.score, Additive)
    leading = call.leading
    heads_lead = len(call.score.heads) > 0 and len(leading) == 1 + len(call.score.heads)
    projected = call.score.project(call.query)
    query, key, value = (
        _folded(tensor.to(projected.dtype).expand(*leading, -1, -1), heads_lead)
        for tensor in (projected, call.memory, call.value)
    )
    v = _folded(call.score.v.float().unsqueeze(-2).expand(*leading, -1, -1), heads_lead).squeeze(-2)
    seed = drawn_seed(query.device) if call.dropout else None
    unpacked = unpack(call)
    if unpacked is None:
        scope = scope_of(call).turned(leading[0]) if heads_lead else scope_of(call)
    else:
        scope = unpacked.scope(*call.mask.band)
        query, key, value = unpacked.queries(query), unpacked.keys(key), unpacked.keys(value)
        v = v.repeat_interleave(unpacked.slots, 0)
    output, _ = (operator or attention)(
        query, key, v, value, scope.mask, scope.low, scope.high, scope.inner, call.dropout, seed
    )
    output = output if unpacked is None else unpacked.back(output)
    if heads_lead:
        return Attended(output.view(*leading[1:], leading[0], *output.shape[-2:]).movedim(-3, 0))
    return Attended(output.view(*leading, *output.shape[-2:]))


def _folded(x: Tensor, heads_lead: bool) -> Tensor:
    """[*leading, T, D] -> [N, T, D]; heads first, as a product with a matrix for each head leaves them."""
    count = math.prod(x.shape[:-2])
    return (x.movedim(0, -3) if heads_lead else x).reshape(count, *x.shape[-2:]).contiguous()


def attention(
    query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor, *options: object
) -> tuple[Tensor, Tensor]:
    """By the operator that is quicker; with it what its backward pass keeps, of no use to others."""
    tensors = (query_NTA, key_NSA, v_NA, value_NSD)
    (_, num_queries, width), (_, num_keys, value_width) = query_NTA.shape, value_NSD.shape
    num_pairs, is_whole = num_queries * num_keys, all(option is None for option in options[:3])  # mask and band
    is_learning = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    is_small = num_pairs <= (num_queries + num_keys) * (width + value_width)
    if is_small and (is_learning or (is_whole and num_pairs >= MANY_PAIRS)):
        return kept_attention(*tensors, *options)
    return additive_attention(*tensors, *options)


@torch.library.custom_op("saccade::additive_attention", mutates_args=())
def additive_attention(
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
    """softmax(v·tanh(q_t + k_s)) values, [N, T, D], and the log-sums [N, T]."""
    scope, drop = Scope(low, high, mask, inner), Dropout(dropout, seed)
    return cuda.attend_prepared_or_raw(cuda.RawTerms(query_NTA, key_NSA, v_NA), value_NSD, scope, drop)


def attended_shapes(
    query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor, *options: object
) -> tuple[Tensor, Tensor]:
    """What the operator returns, empty."""
    del key_NSA, options
    return value_NSD.new_empty(*query_NTA.shape[:2], value_NSD.shape[-1]), v_NA.new_empty(query_NTA.shape[:2])


additive_attention.register_fake(attended_shapes)


@torch.library.custom_op("saccade::additive_attention_backward", mutates_args=())
def additive_attention_backward(
    grad_NTD: Tensor,
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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients for query, key, v and value."""
    with torch.autocast(query_NTA.device.type, enabled=False):
        grad_NTD = grad_NTD.contiguous()
        prepared = cuda.prepare(query_NTA, key_NSA, v_NA)
        wide = [torch.empty_like(x, dtype=torch.float32) for x in (query_NTA, key_NSA, value_NSD)]
        of_query, of_key, of_value = wide
        of_v = torch.zeros_like(v_NA)
        for count, steps in parts(*prepared.sizes):
            masked = Masked(Scope(low, high, mask, inner), Dropout(dropout, seed), count.start, steps.start)
            part, grad, values = prepared.part(count, steps), grad_NTD[count, steps], value_NSD[count]
            score = cuda.scores(part)
            g = wide_product(grad, values.mT)
            weight = weights_and_gradient(score, g, masked, values.dtype)
            again = steps.start > 0
            product = wide_product(weight.mT, grad)
            of_value[count] = of_value[count].add_(product) if again else product
            given = (query_NTA[count, steps], key_NSA[count], v_NA[count], g)
            launch, more = gradients(*given, of_query[count, steps], of_key[count], add=again)
            launch()
            of_v[count] += more
        types = (query_NTA.dtype, key_NSA.dtype, value_NSD.dtype)
        query, key, value = (tensor.to(dtype) for tensor, dtype in zip(wide, types, strict=True))
        return query, key, of_v, value


@additive_attention_backward.register_fake
def _(
    grad_NTD: Tensor,
    query_NTA: Tensor,
    key_NSA: Tensor,
    v_NA: Tensor,
    value_NSD: Tensor,
    *options: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del grad_NTD, options
    query, key, v, value = (torch.empty_like(x) for x in (query_NTA, key_NSA, v_NA, value_NSD))
    return query, key, v, value


def parts(count: int, num_queries: int, num_keys: int) -> Iterator[tuple[slice, slice]]:
    """Whole batch entries, as many as PAIRS allow, or blocks of queries of one."""
    if num_queries * num_keys <= PAIRS:
        size = max(1, PAIRS // (num_queries * num_keys))
        for first in range(0, count, size):
            yield slice(first, min(first + size, count)), slice(0, num_queries)
        return
    steps = max(1, PAIRS // num_keys // cuda.ROWS) * cuda.ROWS
    for n in range(count):
        for first in range(0, num_queries, steps):
            yield slice(n, n + 1), slice(first, min(first + steps, num_queries))


def save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]) -> None:
    """What the backward pass wants: the inputs alone."""
    query, key, v, value, mask, low, high, inner, dropout, seed = inputs
    ctx.save_for_backward(query, key, v, value, mask, seed)  # type: ignore[arg-type]
    ctx.options = (low, high, inner, dropout)  # type: ignore[attr-defined]
    ctx.mark_non_differentiable(output[1])


def differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor, unused: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients for query, key, v and value."""
    del unused
    *tensors, mask, seed = ctx.saved_tensors  # type: ignore[attr-defined]
    low, high, inner, dropout = ctx.options  # type: ignore[attr-defined]
    gradients = additive_attention_backward(grad, *tensors, mask, low, high, inner, dropout, seed)
    return (*gradients, None, None, None, None, None, None)


additive_attention.register_autograd(differentiate, setup_context=save)
