"""Maxout of pairs (Goodfellow 2013, section 2): y_i = max(x_2i, x_2i+1)."""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.ops.kernels.availability import is_fused


def maxout(x: Tensor) -> Tensor:
    """Return the maximum of each pair, [..., 2 D] to [..., D]; equal neighbours share a gradient."""
    return pair_maximum(x) if is_fused(x) else x.unflatten(-1, (-1, 2)).amax(-1)


@torch.library.custom_op("saccade::pair_maximum", mutates_args=())
def pair_maximum(x: Tensor) -> Tensor:
    """Return the larger of each two neighbours, in one pass over memory."""
    from saccade.ops.kernels.maxout import forward

    return forward(x)


@pair_maximum.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], x.shape[-1] // 2)


@torch.library.custom_op("saccade::pair_maximum_backward", mutates_args=())
def pair_maximum_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient for x, from that of the maxima."""
    from saccade.ops.kernels.maxout import backward

    return backward(grad, x)


@pair_maximum_backward.register_fake
def _(grad: Tensor, x: Tensor) -> Tensor:
    del grad
    return torch.empty_like(x)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:
    return pair_maximum_backward(grad, *ctx.saved_tensors)  # type: ignore[attr-defined]


pair_maximum.register_autograd(_differentiate, setup_context=_save)
