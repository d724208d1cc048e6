"""Sentences packed into one row: each attends to its own keys alone, in one Triton kernel forward and one backward.

The tensors are read where the projections left them, whatever their strides, and the output lies as the next projection
reads it. The gradients of a self-attention's query, key and value lie side by side in one buffer [T, 3, H, K], as those
of one joint projection would (see `layout`), so that nothing has to be put together.

G: key/value heads, which the H heads of queries share in groups. W: width of the values.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from saccade.attention.call import Attended, Call
from saccade.attention.kernels.sdpa import refuses_dot
from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Score
from saccade.ops.kernels.availability import runs_on
from saccade.ops.known_gradients import note_sums
from saccade.ops.operator import operator, restore, save
from saccade.ops.pass_context import draw_seed
from saccade.ops.precision import compute_dtype

REASON = "the sentences of the row are packed, so only pairs within each are computed"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WIDEST = 128


class PackedInputs(NamedTuple):
    """The arguments of packed attention. Without `key_start` the sentences attend to themselves."""

    query_HTK: Tensor
    key_GSK: Tensor
    value_GSW: Tensor
    query_start: Tensor
    key_start: Tensor | None
    seed: Tensor | None
    scale: float
    low: int | None
    high: int | None
    dropout: float
    longest: int  # no sentence has more queries or keys


def refuses(call: Call) -> str | None:
    """Return why the kernel can't run this call, or None."""
    if not runs_on(call.query.device):
        return f"Triton can't run on {call.query.device.type} here"
    if call.mask.packing is None:
        return "the mask is more or less than packed sentences and a band"
    if call.bias is not None:
        return "a bias was given"
    if (refusal := refuses_dot(call)) is not None:
        return refusal
    if not isinstance(call.normalizer, Softmax):
        return "the normalizer is not softmax"
    if compute_dtype(call.query) not in DTYPES:
        return f"the kernel computes in half and single precision, not in {compute_dtype(call.query)}"
    if max(call.query.shape[-1], call.memory.shape[-1], call.value.shape[-1]) > WIDEST:
        return f"a head is wider than {WIDEST}"
    return None


def run(call: Call) -> Attended:
    """Compute softmax(scale q·k) v within each sentence."""
    assert isinstance(call.score, Score)
    assert call.mask.packing is not None
    form = call.score.as_dot(call.query, call.memory)
    assert form is not None
    assert form.scale > 0  # the kernel takes a row's maximum before it scales
    leading, dtype, packing = call.leading, compute_dtype(call.query), call.mask.packing
    query = form.query.to(dtype).expand(*leading, -1, -1)
    shared = len(leading) > 0 and all(x.dim() < 3 or x.shape[-3] == 1 for x in (form.key, call.value))
    own = (*leading[:-1], 1) if shared else leading  # heads in groups: keys and values stay as few as they are
    key, value = (x.to(dtype).expand(*own, -1, -1) for x in (form.key, call.value))
    is_self = packing.key_start is packing.query_start and call.num_queries == call.num_keys
    seed = draw_seed(query.device) if call.dropout else None
    given = PackedInputs(
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
    output_THW, _ = packed_attention(*given)
    return Attended(output_THW.transpose(0, 1).view(*leading, *query.shape[-2:-1], value.shape[-1]))


def _output_shapes(given: PackedInputs) -> tuple[Tensor, Tensor]:
    num_heads, num_queries, _ = given.query_HTK.shape
    output = given.query_HTK.new_empty(num_queries, num_heads, given.value_GSW.shape[-1])
    return output, given.query_HTK.new_empty(num_heads, num_queries, dtype=torch.float32)


@operator("saccade::packed_attention", shapes=_output_shapes)
def packed_attention(given: PackedInputs) -> tuple[Tensor, Tensor]:
    """Compute the output [T, H, W], and log2 of the sum of powers of every row [H, T]."""
    from saccade.attention.kernels.packed import forward

    return forward.forward(given)


def _gradient_shapes(grad_THW: Tensor, given: PackedInputs, output_THW: Tensor, peak_HT: Tensor) -> list[Tensor]:
    del grad_THW, output_THW
    buffers = _buffers(given)
    return [*buffers, peak_HT.new_empty(sum(buffer[0].numel() for buffer in buffers))]


@operator("saccade::packed_attention_backward", shapes=_gradient_shapes)
def packed_attention_backward(
    grad_THW: Tensor, given: PackedInputs, output_THW: Tensor, peak_HT: Tensor
) -> list[Tensor]:
    """Return the buffers that hold the gradients (see `layout`), and the sums over rows of them all."""
    from saccade.attention.kernels.packed import backward

    buffers = _buffers(given)
    return [*buffers, backward.backward(grad_THW, given, output_THW, peak_HT, layout(buffers, given))]


def _groups(given: PackedInputs) -> list[list[Tensor]]:
    """Return which gradients share a buffer: those that one joint projection of a row of tokens may have made."""
    query, key, value, *_ = given
    if key.shape != value.shape:
        return [[query], [key], [value]]
    return [[query, key, value]] if given.key_start is None else [[query], [key, value]]


def _buffers(given: PackedInputs) -> list[Tensor]:
    return [
        members[0].new_empty(members[0].shape[1], sum(x.shape[0] for x in members), members[0].shape[2])
        for members in _groups(given)
    ]


def layout(buffers: list[Tensor], given: PackedInputs) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients in their buffers, [H, T, K], [G, S, K] and [G, S, W]."""
    found = [
        part.transpose(0, 1)
        for buffer, members in zip(buffers, _groups(given), strict=True)
        for part in buffer.split([x.shape[0] for x in members], 1)
    ]
    return found[0], found[1], found[2]


def _keep(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    save(ctx, *inputs, *output)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: FunctionCtx, grad: Tensor | None, unused: Tensor | None) -> tuple[Tensor | None, ...]:
    del unused  # nobody reads the peaks
    *inputs, output, peak = restore(ctx)
    if grad is None:
        return (None,) * len(inputs)
    *buffers, sums = packed_attention_backward(grad, *inputs, output, peak)
    for buffer, sum_F in zip(buffers, sums.split([buffer[0].numel() for buffer in buffers]), strict=True):
        note_sums(buffer.flatten(1), sum_F)
    return (*layout(buffers, PackedInputs(*inputs)), *(None,) * (len(inputs) - 3))


packed_attention.register_autograd(_differentiate, setup_context=_keep)
