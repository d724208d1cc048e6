"""Any normaliser, and local_p, over dot products: sparse weights without a sort, in O((T + S) D) memory, in Triton.

The scores are made again, block by block, whenever they are wanted; see `streamed_forward` and `streamed_backward`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.kernels.additive.scope import Scope, scope_of
from saccade.attention.kernels.packed.unpack import unpack
from saccade.attention.normalizers import Entmax15, Softmax, Sparsemax
from saccade.attention.scores import Score
from saccade.ops.dropout import drawn_seed
from saccade.ops.kernels.availability import runs_on
from saccade.ops.precision import computed_in

REASON = "scores are made in blocks and normalised without a sort, and no [T, S] tensor is held"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
KINDS: dict[type, str] = {Softmax: "softmax", Sparsemax: "sparsemax", Entmax15: "entmax15"}
WIDEST = 256


def refuses(call: Call) -> str | None:
    """Why this call can't run here."""
    if not runs_on(call.query.device):
        return f"Triton can't run on {call.query.device.type} here"
    if call.bias is not None:
        return "a bias was given"
    if call.wants_weights:
        return "the weights were asked for"
    if not isinstance(call.score, Score) or type(call.score).as_dot is Score.as_dot:
        return f"the score {getattr(call.score, '__name__', type(call.score).__name__)} is not a dot product"
    if type(call.normalizer) not in KINDS:
        return f"the normalizer is not one of {', '.join(KINDS.values())}"
    if call.mask.factor is not None and call.mask.local is None:
        return "the mask weighs its keys by more than one local_p"
    if computed_in(call.query) not in DTYPES:
        return f"the kernel computes in half and single precision, not in {computed_in(call.query)}"
    if max(call.query.shape[-1], call.memory.shape[-1], call.value.shape[-1]) > WIDEST:
        return f"a head is wider than {WIDEST}"
    if not math.prod(call.leading) * call.num_queries:
        return "there is no query"
    return None


def pays(call: Call) -> bool:
    """Whether no other kernel has what is asked: a sparse normaliser, or local_p."""
    return not isinstance(call.normalizer, Softmax) or call.mask.factor is not None


def run(call: Call) -> Attended:
    """normalise(scale q·k) v."""
    assert isinstance(call.score, Score)
    form = call.score.as_dot(call.query, call.memory)
    assert form is not None
    assert form.scale > 0  # a row's best score is the best product
    leading, dtype = call.leading, computed_in(call.query)
    local, unpacked = call.mask.local, unpack(call)
    shared = (
        unpacked is None and len(leading) > 1 and all(x.dim() < 3 or x.shape[-3] == 1 for x in (form.key, call.value))
    )
    own = (*leading[:-1], 1) if shared else leading  # heads in groups: keys and values stay as few as they are
    query, key, value = (
        _folded(x.to(dtype).expand(*axes, -1, -1), axes)
        for x, axes in ((form.query, leading), (form.key, own), (call.value, own))
    )
    centre = None
    if local is not None:
        centre = local.centre.float()
        batch, length = centre.shape[:-1], centre.shape[-1]
        centre = centre.view(*batch, *(1,) * (len(leading) - len(batch)), length).expand(*leading, length)
        centre = centre.reshape(*query.shape[:3]).contiguous()
        call = replace(call, mask=local.others)
    if unpacked is None:
        scope = scope_of(call)
    else:
        scope = unpacked.scope(*call.mask.band)
        query = unpacked.queries(query.flatten(0, 1)).unflatten(0, (-1, unpacked.slots))
        key, value = (unpacked.keys(x.flatten(0, 1)).unflatten(0, (-1, unpacked.slots)) for x in (key, value))
    output, _ = streamed_attention(
        query,
        key,
        value,
        scope.mask,
        centre,
        drawn_seed(query.device) if call.dropout else None,
        KINDS[type(call.normalizer)],
        float(form.scale),
        scope.low,
        scope.high,
        0 if local is None else local.radius,
        float(call.dropout),
    )
    if unpacked is not None:
        output = unpacked.back(output.flatten(0, 1))
    return Attended(output.reshape(*leading, call.num_queries, output.shape[-1]))


def _folded(x: Tensor, leading: tuple[int, ...]) -> Tensor:
    """Any leading axes as two, the batch and the heads."""
    return x.reshape(math.prod(leading[:1]), math.prod(leading[1:]), *x.shape[-2:])


@torch.library.custom_op("saccade::streamed_attention", mutates_args=())
def streamed_attention(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSW: Tensor,
    mask: Tensor | None,
    centre_BHT: Tensor | None,
    seed: Tensor | None,
    kind: str,
    scale: float,
    low: int | None,
    high: int | None,
    radius: int,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """The output [B, H, T, W], and two numbers for each row, from which its weights can be had again."""
    from saccade.attention.kernels.sparse import forward
    from saccade.attention.kernels.sparse.tiles import SparseCall

    asked = SparseCall(kind, scale, Scope(low, high, mask), centre_BHT, radius, dropout, seed)
    return forward.forward(query_BHTK, key_BGSK, value_BGSW, asked)


@streamed_attention.register_fake
def _(query_BHTK: Tensor, key_BGSK: Tensor, value_BGSW: Tensor, *options: object) -> tuple[Tensor, Tensor]:
    del key_BGSK, options
    peak = query_BHTK.new_empty(*query_BHTK.shape[:3], 2, dtype=torch.float32)
    return _rows_like(query_BHTK, value_BGSW.shape[-1]), peak


@torch.library.custom_op("saccade::streamed_attention_backward", mutates_args=())
def streamed_attention_backward(
    grad_BHTW: Tensor,
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSW: Tensor,
    peak_BHT2: Tensor,
    mask: Tensor | None,
    centre_BHT: Tensor | None,
    seed: Tensor | None,
    kind: str,
    scale: float,
    low: int | None,
    high: int | None,
    radius: int,
    dropout: float,
) -> list[Tensor]:
    """Gradients for query, key, value and, where there are some, centres."""
    from saccade.attention.kernels.sparse import backward
    from saccade.attention.kernels.sparse.tiles import SparseCall

    gradients = _gradients(query_BHTK, key_BGSK, value_BGSW, centre_BHT)
    asked = SparseCall(kind, scale, Scope(low, high, mask), centre_BHT, radius, dropout, seed)
    backward.backward(grad_BHTW, query_BHTK, key_BGSK, value_BGSW, peak_BHT2, asked, gradients)
    return gradients


@streamed_attention_backward.register_fake
def _(
    grad_BHTW: Tensor,
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSW: Tensor,
    peak_BHT2: Tensor,
    mask: Tensor | None,
    centre_BHT: Tensor | None,
    *options: object,
) -> list[Tensor]:
    del grad_BHTW, peak_BHT2, mask, options
    return _gradients(query_BHTK, key_BGSK, value_BGSW, centre_BHT)


def _gradients(query: Tensor, key: Tensor, value: Tensor, centre: Tensor | None) -> list[Tensor]:
    found = [_rows_like(x, x.shape[-1]) for x in (query, key, value)]
    return found if centre is None else [*found, torch.empty_like(centre)]


def _rows_like(x_BHTK: Tensor, width: int) -> Tensor:
    """[B, H, T, width], the heads of a step side by side, as projections write and read them."""
    batch, heads, steps, _ = x_BHTK.shape
    return x_BHTK.new_empty(batch, steps, heads, width).transpose(1, 2)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.kind, ctx.scale, ctx.low, ctx.high, ctx.radius, ctx.dropout = inputs  # type: ignore[attr-defined]
    ctx.save_for_backward(*tensors, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor | None, unused: Tensor | None
) -> tuple[Tensor | None, ...]:
    del unused
    query, key, value, mask, centre, seed, peak = ctx.saved_tensors  # type: ignore[attr-defined]
    if grad is None:
        return (None,) * 12
    rules = (ctx.kind, ctx.scale, ctx.low, ctx.high, ctx.radius, ctx.dropout)  # type: ignore[attr-defined]
    found = streamed_attention_backward(grad, query, key, value, peak, mask, centre, seed, *rules)
    of_query, of_key, of_value, *of_centre = found
    return (of_query, of_key, of_value, None, of_centre[0] if of_centre else None, *(None,) * 7)


streamed_attention.register_autograd(_differentiate, setup_context=_save)
