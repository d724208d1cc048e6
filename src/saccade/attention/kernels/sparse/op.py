"""Any normaliser, and local_p, over dot products: sparse weights without a sort, in O((T + S) D) memory, in Triton.

The scores are computed again, block by block, whenever they are needed; see `forward.py` and `backward.py`.

G: key/value heads, which the H heads of queries share in groups. W: width of the values.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from saccade.attention.call import Attended, Call
from saccade.attention.kernels.additive.scope import scope_of
from saccade.attention.kernels.packed.unpack import unpack
from saccade.attention.kernels.sdpa import refuses_dot
from saccade.attention.normalizers import Entmax15, Softmax, Sparsemax
from saccade.attention.scores import Score
from saccade.ops.kernels.availability import runs_on
from saccade.ops.operator import operator, restore, save
from saccade.ops.pass_context import draw_seed
from saccade.ops.precision import compute_dtype

REASON = "scores are made in blocks and normalised without a sort, and no [T, S] tensor is held"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
KINDS: dict[type, str] = {Softmax: "softmax", Sparsemax: "sparsemax", Entmax15: "entmax15"}
WIDEST = 256


class SparseInputs(NamedTuple):
    """The arguments of streamed attention."""

    query_BHTK: Tensor
    key_BGSK: Tensor
    value_BGSW: Tensor
    mask: Tensor | None
    centre_BHT: Tensor | None  # local_p's
    seed: Tensor | None
    kind: str  # of normaliser, one of KINDS
    scale: float
    low: int | None
    high: int | None
    radius: int
    dropout: float


def refuses(call: Call) -> str | None:
    """Return why the kernel can't run this call, or None."""
    if not runs_on(call.query.device):
        return f"Triton can't run on {call.query.device.type} here"
    if call.bias is not None:
        return "a bias was given"
    if (refusal := refuses_dot(call)) is not None:
        return refusal
    if type(call.normalizer) not in KINDS:
        return f"the normalizer is not one of {', '.join(KINDS.values())}"
    if call.mask.factor is not None and call.mask.local is None:
        return "the mask weighs its keys by more than one local_p"
    if compute_dtype(call.query) not in DTYPES:
        return f"the kernel computes in half and single precision, not in {compute_dtype(call.query)}"
    if max(call.query.shape[-1], call.memory.shape[-1], call.value.shape[-1]) > WIDEST:
        return f"a head is wider than {WIDEST}"
    if not math.prod(call.leading) * call.num_queries:
        return "there is no query"
    return None


def pays(call: Call) -> bool:
    """Return True if no other kernel has what the call needs: a sparse normaliser, or local_p."""
    return not isinstance(call.normalizer, Softmax) or call.mask.factor is not None


def run(call: Call) -> Attended:
    """Compute normalise(scale q·k) v."""
    assert isinstance(call.score, Score)
    form = call.score.as_dot(call.query, call.memory)
    assert form is not None
    assert form.scale > 0  # a row's best score is the best product
    leading, dtype = call.leading, compute_dtype(call.query)
    local, unpacked = call.mask.local, unpack(call)
    shared = (
        unpacked is None and len(leading) > 1 and all(x.dim() < 3 or x.shape[-3] == 1 for x in (form.key, call.value))
    )
    own = (*leading[:-1], 1) if shared else leading  # heads in groups: keys and values stay as few as they are
    query, key, value = (
        _fold(x.to(dtype).expand(*axes, -1, -1), axes)
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
    given = SparseInputs(
        query,
        key,
        value,
        scope.mask,
        centre,
        draw_seed(query.device) if call.dropout else None,
        KINDS[type(call.normalizer)],
        float(form.scale),
        scope.low,
        scope.high,
        0 if local is None else local.radius,
        float(call.dropout),
    )
    output, _ = streamed_attention(*given)
    if unpacked is not None:
        output = unpacked.back(output.flatten(0, 1))
    return Attended(output.reshape(*leading, call.num_queries, output.shape[-1]))


def _fold(x: Tensor, leading: tuple[int, ...]) -> Tensor:
    """Fold any leading axes to two, the batch and the heads."""
    return x.reshape(math.prod(leading[:1]), math.prod(leading[1:]), *x.shape[-2:])


def _output_shapes(given: SparseInputs) -> tuple[Tensor, Tensor]:
    query = given.query_BHTK
    peak = query.new_empty(*query.shape[:3], 2, dtype=torch.float32)
    return rows_like(query, given.value_BGSW.shape[-1]), peak


@operator("saccade::streamed_attention", shapes=_output_shapes)
def streamed_attention(given: SparseInputs) -> tuple[Tensor, Tensor]:
    """Compute the output [B, H, T, W], and two numbers for each row, from which its weights can be had again."""
    from saccade.attention.kernels.sparse import forward

    return forward.forward(given)


def _gradient_shapes(grad_BHTW: Tensor, given: SparseInputs, peak_BHT2: Tensor) -> list[Tensor]:
    del grad_BHTW, peak_BHT2
    return _gradients(given)


@operator("saccade::streamed_attention_backward", shapes=_gradient_shapes)
def streamed_attention_backward(grad_BHTW: Tensor, given: SparseInputs, peak_BHT2: Tensor) -> list[Tensor]:
    """Compute the gradients for query, key, value and, where there are some, centres."""
    from saccade.attention.kernels.sparse import backward

    gradients = _gradients(given)
    backward.backward(grad_BHTW, given, peak_BHT2, gradients)
    return gradients


def _gradients(given: SparseInputs) -> list[Tensor]:
    found = [rows_like(x, x.shape[-1]) for x in (given.query_BHTK, given.key_BGSK, given.value_BGSW)]
    return found if given.centre_BHT is None else [*found, torch.empty_like(given.centre_BHT)]


def rows_like(x_BHTK: Tensor, width: int) -> Tensor:
    """Return an empty [B, H, T, width], the heads of a step side by side, as projections write and read them."""
    batch, heads, steps, _ = x_BHTK.shape
    return x_BHTK.new_empty(batch, steps, heads, width).transpose(1, 2)


def _keep(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    save(ctx, *inputs, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: FunctionCtx, grad: Tensor | None, unused: Tensor | None) -> tuple[Tensor | None, ...]:
    del unused
    if grad is None:
        return (None,) * len(SparseInputs._fields)
    of_query, of_key, of_value, *of_centre = streamed_attention_backward(grad, *restore(ctx))
    return (of_query, of_key, of_value, None, of_centre[0] if of_centre else None, *(None,) * 7)


streamed_attention.register_autograd(_differentiate, setup_context=_keep)
