"""The position-wise network of a Transformer block."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention.dropout import dropout
from saccade.layers.residual import is_fused, streamed

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swiglu": F.silu}


@final
class FeedForward(nn.Module):
    """W2 f(W1 x) (Vaswani 2017, section 3.3); with swiglu, W2 (silu(W1 x) * V x) (Shazeer 2020, section 2)."""

    def __init__(self, width: int, hidden_width: int, *, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation: {activation!r} given; allowed: {', '.join(ACTIVATIONS)}")
        self.activation, self.dropout = ACTIVATIONS[activation], dropout
        self.inner = nn.Linear(width, hidden_width)
        self.gate = nn.Linear(width, hidden_width) if activation == "swiglu" else None
        self.outer = nn.Linear(hidden_width, width)
        for linear in (self.inner, self.gate, self.outer):
            if linear is not None:
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        if self.activation is F.relu and is_fused(x_BTD):
            x_BTD = streamed(x_BTD)
            hidden = linear_relu(x_BTD, self.inner.weight.to(x_BTD.dtype), self.inner.bias)
        else:
            hidden = self.activation(self.inner(x_BTD))
        if self.gate is not None:
            hidden = hidden * self.gate(x_BTD)
        return self.outer(dropout(hidden, self.dropout, self.training))


@torch.library.custom_op("saccade::linear_relu", mutates_args=())
def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu(x Wᵀ + b) [..., F]: the relu where the product is written. (Torch's own spelling has no gradient.)"""
    rows = x.reshape(-1, x.shape[-1])
    return torch._addmm_activation(bias.to(x.dtype), rows, weight.mT).view(*x.shape[:-1], -1)


@linear_relu.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    del bias
    return x.new_empty(*x.shape[:-1], len(weight))


@torch.library.custom_op("saccade::linear_relu_backward", mutates_args=())
def linear_relu_backward(grad: Tensor, hidden: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for x, weight and bias (float32): one pass that masks and sums, two matrix products."""
    from saccade.layers.kernels.relu import masked

    grad_NF, hidden_NF = (tensor.reshape(-1, len(weight)).contiguous() for tensor in (grad, hidden))
    grad_NF, bias = masked(grad_NF, hidden_NF)
    return (grad_NF @ weight).view(x.shape), grad_NF.mT @ x.reshape(-1, x.shape[-1]), bias


@linear_relu_backward.register_fake
def _(grad: Tensor, hidden: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    del grad, hidden
    bias = weight.new_empty(len(weight), dtype=torch.float32)
    return torch.empty_like(x, memory_format=torch.contiguous_format), weight.new_empty(weight.shape), bias


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    x, weight, bias = inputs
    ctx.dtype = bias.dtype  # type: ignore[attr-defined]
    ctx.save_for_backward(output, x, weight)


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, bias = linear_relu_backward(grad, *ctx.saved_tensors)  # type: ignore[attr-defined]
    return x, weight, bias.to(ctx.dtype)  # type: ignore[attr-defined]


linear_relu.register_autograd(_differentiate, setup_context=_save)
