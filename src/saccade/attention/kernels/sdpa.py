"""The dot family on torch's fused scaled-dot-product attention, after a cheap change of query and key."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.attention.call import Attended, Call
from saccade.attention.normalizers import Softmax
from saccade.attention.reference import reference
from saccade.attention.scores import Score

REASON = "the score is a dot product, which torch's fused attention computes"


def refuses(call: Call) -> str | None:
    """Return why the kernel can't run this call, or None."""
    if (refusal := refuses_dot(call)) is not None:
        return refusal
    if not isinstance(call.normalizer, Softmax):
        return f"the normalizer {_name(call.normalizer)} is not softmax"
    if call.mask.factor is not None:
        return "the mask weighs its keys (local_p)"
    return None


def refuses_dot(call: Call) -> str | None:
    """Return why no kernel for dot products can run the call, or None."""
    if call.wants_weights:
        return "the weights were asked for"
    if not isinstance(call.score, Score) or type(call.score).as_dot is Score.as_dot:
        return f"the score {_name(call.score)} is not a dot product"
    return None


def run(call: Call) -> Attended:
    """Compute softmax(scale q·k) v in one kernel."""
    assert isinstance(call.score, Score)
    form = call.score.as_dot(call.query, call.memory)
    assert form is not None
    if _has_nan(form.query, form.key):
        return reference(call)
    leading, width = call.leading, call.value.shape[-1]
    query, key, value = _same_width(form.query, form.key, call.value)
    causal = False
    if (
        call.bias is None and call.mask.is_causal and call.num_queries == call.num_keys
    ):  # a branch: compiled sizes may be symbols
        causal = True
    mask = None if causal else call.dense_mask()
    added = mask if call.bias is None else _add_mask(call.bias.to(query.dtype), mask)
    shares_keys = len(leading) > 2 and leading[-1] > 1 and key.dim() > 2 and key.shape[-3] == 1  # grouped heads
    output = F.scaled_dot_product_attention(
        _fold(query, leading, shares_keys),
        _fold(key, leading, shares_keys),
        _fold(value, leading, shares_keys),
        attn_mask=None if added is None else _fold_mask(added, leading, shares_keys),
        dropout_p=call.dropout,
        is_causal=causal,
        scale=form.scale,
    )
    output = output[..., :width].reshape(*leading, call.num_queries, width)
    averages = output.device.type != "cpu" or call.bias is not None
    if mask is not None and averages:  # some kernels average all keys where none is allowed, or give NaN
        output = output.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return Attended(output)


def _has_nan(*tensors: Tensor) -> bool:
    """Return True for NaN on a CPU, where torch's kernel gives zeros for a row of NaN; elsewhere it gives NaN."""
    if tensors[0].device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return any(bool(tensor.detach().sum().isnan()) for tensor in tensors)


def _add_mask(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Return the bias with -inf at forbidden keys; a row that allows none stays finite, and is zeroed afterwards."""
    return bias if mask is None else bias.masked_fill(~mask & mask.any(-1, keepdim=True), -torch.inf)


def _same_width(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pad the narrower ones with zeros: the fused kernels want one width, and zeros change no product."""
    width = max(query.shape[-1], value.shape[-1])
    return _pad_to(query, width), _pad_to(key, width), _pad_to(value, width)


def _pad_to(tensor: Tensor, width: int) -> Tensor:
    return tensor if tensor.shape[-1] == width else F.pad(tensor, (0, width - tensor.shape[-1]))


def _fold(tensor: Tensor, leading: tuple[int, ...], last_apart: bool) -> Tensor:
    """Fold any leading axes to the two that fused kernels take."""
    rows = tensor.shape[-2:]
    if last_apart:  # what grouped heads share keeps a stride of 0: nothing is copied for each of them
        shared = tensor.shape[-3] if tensor.dim() > 2 else 1
        tensor = tensor.expand(*leading[:-1], shared, *rows)
        return tensor.reshape(math.prod(leading[:-1]), shared, *rows).expand(-1, leading[-1], -1, -1)
    if tensor.shape[:-2] != leading:
        tensor = tensor.expand(*leading, *rows)
    return tensor if len(leading) == 2 else tensor.reshape(math.prod(leading[:1]), math.prod(leading[1:]), *rows)


def _fold_mask(mask: Tensor, leading: tuple[int, ...], last_apart: bool) -> Tensor:
    """Fold a mask to the same two axes, but axes it doesn't read stay 1: torch would make a float of every entry."""
    own = (*(1,) * (len(leading) + 2 - mask.dim()), *mask.shape[:-2])
    split = len(leading) - 1 if last_apart else 1
    first, second = (
        full if math.prod(mine) > 1 else mine
        for full, mine in ((leading[:split], own[:split]), (leading[split:], own[split:]))
    )
    spread = mask.expand(*first, *second, *mask.shape[-2:])
    return spread.reshape(math.prod(first), math.prod(second), *mask.shape[-2:])


def _name(part: object) -> str:
    return getattr(part, "__name__", type(part).__name__)
