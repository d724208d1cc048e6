"""Sentences packed into one row: each asks its own keys alone, in one Triton kernel forward and one backward.

The tensors are read where the projections left them, whatever their strides, and the output lies as the next projection
reads it. The gradients of a self-attention's query, key and value lie side by side in one buffer [T, 3, H, K], as those
of one joint projection would (see `layout`), so that nothing has to be put together.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Score
from saccade.ops.bias_sums import remember
from saccade.ops.dropout import drawn_seed
from saccade.ops.kernels.availability import runs_on
from saccade.ops.precision import computed_in

REASON = "the sentences of the row are packed, so only pairs within each are computed"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WIDEST = 128


def refuses(call: Call) -> str | None:
    """Why this call can't run here."""
    if not runs_on(call.query.device):
        return f"Triton can't run on {call.query.device.type} here"
    if call.mask.packing is None:
        return "the mask is more or less than packed sentences and a band"
    if call.bias is not None:
        return "a bias was given"
    if call.wants_weights:
        return "the weights were asked for"
    if not isinstance(call.score, Score) or type(call.score).as_dot is Score.as_dot:
        return f"the score {getattr(call.score, '__name__', type(call.score).__name__)} is not a dot product"
    if not isinstance(call.normalizer, Softmax):
        return "the normalizer is not softmax"
    if computed_in(call.query) not in DTYPES:
        return f"the kernel computes in half and single precision, not in {computed_in(call.query)}"
    if max(call.query.shape[-1], call.memory.shape[-1], call.value.shape[-1]) > WIDEST:
        return f"a head is wider than {WIDEST}"
    return None


def run(call: Call) -> Attended:
    """softmax(scale q·k) v within each sentence."""
    assert isinstance(call.score, Score)
    assert call.mask.packing is not None
    form = call.score.as_dot(call.query, call.memory)
    assert form is not None
    assert form.scale > 0  # the kernel takes a row's maximum before it scales
    leading, dtype, packing = call.leading, computed_in(call.query), call.mask.packing
    query = form.query.to(dtype).expand(*leading, -1, -1)
    shared = len(leading) > 0 and all(x.dim() < 3 or x.shape[-3] == 1 for x in (form.key, call.value))
    own = (*leading[:-1], 1) if shared else leading  # heads in groups: keys and values stay as few as they are
    key, value = (x.to(dtype).expand(*own, -1, -1) for x in (form.key, call.value))
    is_self = packing.key_start is packing.query_start and call.num_queries == call.num_keys
    seed = drawn_seed(query.device) if call.dropout else None
    output_THW, _ = packed_attention(
        query.reshape(math.prod(leading), *query.shape[-2:]),
        key.reshape(math.prod(own), *key.shape[-2:]),
        value.reshape(math.prod(own), *value.shape[-2:]),
        packing.query_start,
        None if is_self else packing.key_start,
        seed,
        float(form.scale),
        *call.mask.band,
        float(call.dropout),
        packing.longest,
    )
    return Attended(output_THW.transpose(0, 1).view(*leading, *query.shape[-2:-1], value.shape[-1]))


@torch.library.custom_op("saccade::packed_attention", mutates_args=())
def packed_attention(
    query_HTK: Tensor,
    key_GSK: Tensor,
    value_GSW: Tensor,
    query_start: Tensor,
    key_start: Tensor | None,
    seed: Tensor | None,
    scale: float,
    low: int | None,
    high: int | None,
    dropout: float,
    longest: int,
) -> tuple[Tensor, Tensor]:
    """The output [T, H, W], and log2 of the sum of powers of every row [H, T]; the H heads share G heads of keys.

    Without `key_start` the sentences attend to themselves.
    """
    from saccade.attention.kernels.packed import forward
    from saccade.attention.kernels.packed.tiles import PackedRules

    rules = PackedRules(scale, low, high, dropout, longest)
    return forward.forward(query_HTK, key_GSK, value_GSW, query_start, key_start, seed, rules)


@packed_attention.register_fake
def _(
    query_HTK: Tensor,
    key_GSK: Tensor,
    value_GSW: Tensor,
    query_start: Tensor,
    key_start: Tensor | None,
    seed: Tensor | None,
    scale: float,
    low: int | None,
    high: int | None,
    dropout: float,
    longest: int,
) -> tuple[Tensor, Tensor]:
    del key_GSK, query_start, key_start, seed, scale, low, high, dropout, longest
    num_heads, num_queries, _ = query_HTK.shape
    output = query_HTK.new_empty(num_queries, num_heads, value_GSW.shape[-1])
    return output, query_HTK.new_empty(num_heads, num_queries, dtype=torch.float32)


@torch.library.custom_op("saccade::packed_attention_backward", mutates_args=())
def packed_attention_backward(
    grad_THW: Tensor,
    query_HTK: Tensor,
    key_GSK: Tensor,
    value_GSW: Tensor,
    output_THW: Tensor,
    peak_HT: Tensor,
    query_start: Tensor,
    key_start: Tensor | None,
    seed: Tensor | None,
    scale: float,
    low: int | None,
    high: int | None,
    dropout: float,
    longest: int,
) -> list[Tensor]:
    """The buffers that `layout` finds the gradients of query, key and value in, and the sums over rows of them all."""
    from saccade.attention.kernels.packed import backward
    from saccade.attention.kernels.packed.tiles import PackedRules

    buffers = _buffers(query_HTK, key_GSK, value_GSW, key_start)
    gradients = layout(buffers, query_HTK, key_GSK, value_GSW, key_start)
    rules = PackedRules(scale, low, high, dropout, longest)
    inputs = (grad_THW, query_HTK, key_GSK, value_GSW, output_THW, peak_HT, query_start, key_start, seed)
    return [*buffers, backward.backward(*inputs, rules, gradients)]


@packed_attention_backward.register_fake
def _(
    grad_THW: Tensor,
    query_HTK: Tensor,
    key_GSK: Tensor,
    value_GSW: Tensor,
    output_THW: Tensor,
    peak_HT: Tensor,
    query_start: Tensor,
    key_start: Tensor | None,
    seed: Tensor | None,
    scale: float,
    low: int | None,
    high: int | None,
    dropout: float,
    longest: int,
) -> list[Tensor]:
    del grad_THW, output_THW, query_start, seed, scale, low, high, dropout, longest
    buffers = _buffers(query_HTK, key_GSK, value_GSW, key_start)
    return [*buffers, peak_HT.new_empty(sum(buffer[0].numel() for buffer in buffers))]


def _together(query: Tensor, key: Tensor, value: Tensor, key_start: Tensor | None) -> list[list[Tensor]]:
    """Which gradients share a buffer: those that one joint projection of a row of tokens may have made."""
    if key.shape != value.shape:
        return [[query], [key], [value]]
    return [[query, key, value]] if key_start is None else [[query], [key, value]]


def _buffers(query: Tensor, key: Tensor, value: Tensor, key_start: Tensor | None) -> list[Tensor]:
    return [
        members[0].new_empty(members[0].shape[1], sum(x.shape[0] for x in members), members[0].shape[2])
        for members in _together(query, key, value, key_start)
    ]


def layout(
    buffers: list[Tensor], query: Tensor, key: Tensor, value: Tensor, key_start: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients in their buffers, [H, T, K], [G, S, K] and [G, S, W]."""
    found = [
        part.transpose(0, 1)
        for buffer, members in zip(buffers, _together(query, key, value, key_start), strict=True)
        for part in buffer.split([x.shape[0] for x in members], 1)
    ]
    return found[0], found[1], found[2]


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale, ctx.low, ctx.high, ctx.dropout, ctx.longest = inputs  # type: ignore[attr-defined]
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor | None, grad_peak: Tensor | None
) -> tuple[Tensor | None, ...]:
    del grad_peak  # nobody reads the peaks
    query, key, value, query_start, key_start, seed, output, peak = ctx.saved_tensors  # type: ignore[attr-defined]
    if grad is None:
        return (None,) * 11
    rules = (ctx.scale, ctx.low, ctx.high, ctx.dropout, ctx.longest)  # type: ignore[attr-defined]
    inputs = (query, key, value, output, peak, query_start, key_start, seed)
    *buffers, sums = packed_attention_backward(grad, *inputs, *rules)
    for buffer, sum_F in zip(buffers, sums.split([buffer[0].numel() for buffer in buffers]), strict=True):
        remember(buffer.flatten(1), sum_F)
    return (*layout(buffers, query, key, value, key_start), *(None,) * 8)


packed_attention.register_autograd(_differentiate, setup_context=_save)
