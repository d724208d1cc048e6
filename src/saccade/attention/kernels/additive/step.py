"""One step of a decoder's additive attention: scores, softmax and context in one Triton kernel.

The keys, the values and v are constants here: a loop makes their gradients once, for all its steps
(`ops.shared_gradients`). The backward kernel computes the scores' tanh again and returns the query's gradient alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from saccade.attention.call import Attended, Call
from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Additive
from saccade.ops.kernels.availability import runs_on
from saccade.ops.operator import operator

REASON = "a single query asks with the additive score, and all but the query is constant"
MOST_KEYS = 1024  # a program holds the scores of all keys


class AdditiveStepInputs(NamedTuple):
    """The arguments of one additive step; of the keys and values of row b, the first `length` are real."""

    query_BA: Tensor
    memory_BSA: Tensor
    v_A: Tensor
    value_BSD: Tensor
    length_B: Tensor


class AdditiveStepOutputs(NamedTuple):
    """The contexts in the values' dtype, and scores and their log-sums in float32."""

    context_BD: Tensor
    score_BS: Tensor
    log_sum_B: Tensor


def refuses(call: Call) -> str | None:
    """Return why the kernel can't run this call, or None."""
    if not isinstance(call.score, Additive) or call.score.heads:
        return "the score is not additive, or has heads"
    if (
        call.num_queries != 1
        or len(call.leading) != 1
        or not call.query.shape[0] == len(call.memory) == len(call.value)
    ):
        return "it is not one query for each row of a batch"
    if not isinstance(call.normalizer, Softmax) or call.bias is not None or call.dropout:
        return "it is not a plain softmax, or there are a bias or dropout"
    if not (call.mask.is_full or (call.mask.length is not None and len(call.mask.length) == len(call.memory))):
        return "the mask is more than the keys' lengths"
    if call.num_keys > MOST_KEYS:
        return f"there are more than {MOST_KEYS} keys"
    if torch.is_grad_enabled():
        if any(tensor.requires_grad for tensor in (call.memory, call.value, call.score.v)):
            return "the keys, the values or v want a gradient"
        if call.wants_weights and (call.query.requires_grad or call.score.W.requires_grad):
            return "the weights were asked for, and may want a gradient"
    if not runs_on(call.query.device):
        return "there is no Triton, or no CUDA device"
    if torch.float64 in (call.query.dtype, call.memory.dtype, call.value.dtype):
        return "it is float64, and the kernel computes in float32"
    return None


def run(call: Call) -> Attended:
    """Project the query, then attend in one kernel."""
    assert isinstance(call.score, Additive)
    query_BA = call.score.project(call.query).squeeze(-2)
    length_B = call.mask.length
    if length_B is None:
        length_B = torch.full((len(query_BA),), call.num_keys, device=query_BA.device)
    context_BD, score_BS, log_sum_B = additive_step(query_BA, call.memory, call.score.v, call.value, length_B)
    if not call.wants_weights:
        return Attended(context_BD.unsqueeze(1), None)
    is_real_BS = torch.arange(call.num_keys, device=query_BA.device) < length_B[:, None]
    weight_BS = torch.where(is_real_BS, torch.exp(score_BS - log_sum_B[:, None]), 0)
    return Attended(context_BD.unsqueeze(1), weight_BS.to(query_BA.dtype).unsqueeze(1))


def _output_shapes(given: AdditiveStepInputs) -> AdditiveStepOutputs:
    memory, value = given.memory_BSA, given.value_BSD
    score = memory.new_empty(memory.shape[:2], dtype=torch.float32)
    return AdditiveStepOutputs(value.new_empty(len(value), value.shape[-1]), score, score.new_empty(len(score)))


@operator("saccade::additive_step", shapes=_output_shapes)
def additive_step(given: AdditiveStepInputs) -> tuple[Tensor, Tensor, Tensor]:
    """Compute c = sum_s a_s v_s with a = softmax(e), e_s = vᵀ tanh(q + k_s) over s < length.

    Also returns e [B, S] and its log-sums [B], which the backward pass reads.
    """
    from saccade.attention.kernels.additive import step_triton

    return step_triton.forward(given)


def _gradient_shape(grad_BD: Tensor, given: AdditiveStepInputs, made: AdditiveStepOutputs) -> Tensor:
    del grad_BD, made
    return torch.empty_like(given.query_BA)


@operator("saccade::additive_step_backward", shapes=_gradient_shape)
def additive_step_backward(grad_BD: Tensor, given: AdditiveStepInputs, made: AdditiveStepOutputs) -> Tensor:
    """Compute the gradient for q, [B, A]."""
    from saccade.attention.kernels.additive import step_triton

    return step_triton.backward(grad_BD, given, made)


def _keep(ctx: FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: FunctionCtx, grad: Tensor | None, *unused: Tensor | None) -> tuple[Tensor | None, ...]:
    del unused
    if grad is None:
        return None, None, None, None, None
    return additive_step_backward(grad, *ctx.saved_tensors), None, None, None, None  # type: ignore[attr-defined]


additive_step.register_autograd(_differentiate, setup_context=_keep)
