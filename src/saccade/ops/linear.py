"""Linear layers. With Triton on a CUDA device, gradients of weights and biases are written in their own dtype.

R: rows. F: outputs of a layer.

Under autocast torch would write a weight's gradient in half precision and widen it, and sum a bias's slowly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

from saccade.ops.half_weights import current_copies
from saccade.ops.kernels.availability import is_fused
from saccade.ops.known_gradients import take_sums
from saccade.ops.lazy_norm import LazyNorm, Rows, are_few
from saccade.ops.precision import compute_dtype, product


@final
class Linear(nn.Linear):
    """`nn.Linear`, computed by `linear`."""

    def forward(self, x: Rows, relu: bool = False) -> Tensor:
        return linear(x, [self.weight], [] if self.bias is None else [self.bias], relu=relu)


def linear(x: Rows, weights: Sequence[Tensor], biases: Sequence[Tensor], *, relu: bool = False) -> Tensor:
    """Compute x Wᵀ + b [..., F], F the rows of all weights together; there are as many biases, or none."""
    if isinstance(x, LazyNorm) or are_few(x, len(weights[0])):
        from saccade.ops.kernels import few_rows

        return few_rows.product(x, _concatenate(weights), _concatenate(biases) if biases else None, relu)
    if is_fused(x) and (relu or torch.is_grad_enabled()):
        dtype = compute_dtype(x)
        return fused_linear(x.to(dtype), weights, biases, relu, current_copies(weights, biases, dtype))[0]
    y = F.linear(x, _concatenate(weights), _concatenate(biases) if biases else None)
    return F.relu(y) if relu else y


def project_heads(x: Tensor, weight: Tensor) -> Tensor:
    """Compute x Wᵀ: [..., T, D] with [A, D], or with [heads, A, D] where the heads stand before T in x."""
    heads, batch = weight.shape[:-2], x.dim() - weight.dim()
    if not heads or batch < 1 or math.prod(heads) != heads[0] or x.shape[batch] != heads[0]:
        return x @ weight.mT
    rows = x.movedim(batch, 0)  # [heads, ..., T, D]
    found = rows.reshape(heads[0], -1, x.shape[-1]).bmm(weight.reshape(heads[0], *weight.shape[-2:]).mT)
    return found.view(*rows.shape[:-1], weight.shape[-2]).movedim(0, batch)


def _concatenate(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat([*parts])


@torch.library.custom_op("saccade::linear", mutates_args=())
def fused_linear(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], relu: bool, narrow: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Compute x Wᵀ + b in x's dtype, or its relu; and W in x's dtype (empty if it was given).

    `narrow`: W and b in x's dtype, if there are copies.
    """
    if narrow:
        weight, bias = narrow[0], narrow[1] if biases else None
    elif weights[0].dtype == x.dtype:
        weight, bias = _concatenate(weights), _concatenate(biases).to(x.dtype) if biases else None
    else:
        from saccade.ops.kernels.narrow import join_narrow

        weight, bias = join_narrow(weights, biases, x.dtype)
    rows = x.reshape(-1, x.shape[-1])
    if relu and bias is not None:
        y = torch._addmm_activation(bias, rows, weight.mT)
    else:
        y = F.linear(rows, weight, bias)
        y = y.relu_() if relu else y
    is_given = bool(narrow) or weight is weights[0]
    return y.view(*x.shape[:-1], -1), weight.new_empty(0) if is_given else weight


@fused_linear.register_fake
def _(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], relu: bool, narrow: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    del biases, relu
    width = sum(len(weight) for weight in weights)
    is_given = bool(narrow) or (len(weights) == 1 and weights[0].dtype == x.dtype)
    return x.new_empty(*x.shape[:-1], width), x.new_empty(0 if is_given else (width, x.shape[-1]))


@torch.library.custom_op("saccade::linear_backward", mutates_args=())
def linear_backward(
    grad: Tensor, y: Tensor | None, x: Tensor, weight: Tensor, dtype: torch.dtype, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients for x, W (in `dtype`) and b (in float32; empty if there is none). y: a relu's output."""
    from saccade.ops.kernels.columns import column_sums, mask_gradient

    grad_RF = grad.reshape(-1, len(weight)).contiguous()
    bias = grad_RF.new_empty(0, dtype=torch.float32)
    if y is not None:
        grad_RF, bias = mask_gradient(grad_RF, y.reshape(grad_RF.shape).contiguous())
    elif has_bias:
        bias = column_sums(grad_RF)
    return (grad_RF @ weight).view(x.shape), product(grad_RF.mT, x.reshape(-1, x.shape[-1]), dtype), bias


@linear_backward.register_fake
def _(
    grad: Tensor, y: Tensor | None, x: Tensor, weight: Tensor, dtype: torch.dtype, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    del grad
    bias = weight.new_empty(len(weight) if has_bias or y is not None else 0, dtype=torch.float32)
    return torch.empty_like(x, memory_format=torch.contiguous_format), weight.new_empty(weight.shape, dtype=dtype), bias


Inputs = tuple[Tensor, Sequence[Tensor], Sequence[Tensor], bool, Sequence[Tensor]]


def _save(ctx: FunctionCtx, inputs: Inputs, output: tuple[Tensor, Tensor]) -> None:
    (x, weights, biases, relu, given), (y, narrow) = inputs, output
    ctx.widths = [len(weight) for weight in weights]  # type: ignore[attr-defined]
    ctx.dtypes = weights[0].dtype, biases[0].dtype if biases else None  # type: ignore[attr-defined]
    ctx.mark_non_differentiable(narrow)
    ctx.set_materialize_grads(False)  # of what has none
    ctx.num_given = len(given)  # type: ignore[attr-defined]
    ctx.save_for_backward(y if relu else None, x, narrow if narrow.numel() else (*given, weights[0])[0])  # type: ignore[arg-type]


def _differentiate(
    ctx: FunctionCtx, grad: Tensor, unused: Tensor | None
) -> tuple[Tensor, list[Tensor], list[Tensor], None, list[None]]:
    del unused
    dtype, bias_dtype = ctx.dtypes  # type: ignore[attr-defined]
    y, *others = ctx.saved_tensors  # type: ignore[attr-defined]
    known = take_sums(grad) if y is None else None
    x, weight, bias = linear_backward(grad, y, *others, dtype, bias_dtype is not None and known is None)
    bias = bias if known is None else known
    biases = [] if bias_dtype is None else [*bias.to(bias_dtype).split(ctx.widths)]  # type: ignore[attr-defined]
    return x, [*weight.split(ctx.widths)], biases, None, [None] * ctx.num_given  # type: ignore[attr-defined]


fused_linear.register_autograd(_differentiate, setup_context=_save)


class _Split(torch.autograd.Function):
    """`Tensor.split`, whose own backward pass copies all parts into a new tensor."""

    @staticmethod
    def forward(joint: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
        return joint.split(widths, -1)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, tuple[int, ...]], output: tuple[Tensor, ...]) -> None:
        del output
        ctx.widths = inputs[1]  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        whole = _find_whole(grads)
        return torch.cat(grads, -1) if whole is None else whole, None


def split(joint: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Split a joint projection [..., sum of widths] into parts, each [..., width].

    The parts are views, and gradients that come back side by side are taken as they lie.
    """
    if not joint.requires_grad or torch.compiler.is_compiling():
        return joint.split(widths, -1)
    parts: tuple[Tensor, ...] = _Split.apply(joint, widths)
    return parts


def _find_whole(parts: tuple[Tensor, ...]) -> Tensor | None:
    """Return the tensor whose rows hold these parts and nothing else, if there is one."""
    first, width = parts[0], sum(part.shape[-1] for part in parts)
    at = first.storage_offset()
    for part in parts:
        same_rows = (
            part.shape[:-1] == first.shape[:-1] and part.stride() == first.stride() and part.dtype == first.dtype
        )
        same_buffer = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not same_rows or not same_buffer or part.storage_offset() != at or part.stride(-1) != 1:
            return None
        at += part.shape[-1]
    if first.stride(-2) != width:
        return None
    return first.as_strided((*first.shape[:-1], width), first.stride(), first.storage_offset())
