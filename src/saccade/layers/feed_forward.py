"""The position-wise network of a Transformer block."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from torch import Tensor, nn
from torch.nn import functional as F

from saccade.ops.dropout import dropout
from saccade.ops.lazy_norm import Rows
from saccade.ops.linear import Linear
from saccade.ops.relu_network import relu_network

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "swiglu": F.silu,
}


@final
class FeedForward(nn.Module):
    """W2 f(W1 x) (Vaswani 2017, section 3.3); with swiglu, W2 (silu(W1 x) * V x) (Shazeer 2020, section 2)."""

    def __init__(self, width: int, hidden_width: int, *, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation: {activation!r} given; allowed: {', '.join(ACTIVATIONS)}")
        self.activation, self.dropout = ACTIVATIONS[activation], dropout
        self.inner = Linear(width, hidden_width)
        self.gate = Linear(width, hidden_width) if activation == "swiglu" else None
        self.outer = Linear(hidden_width, width)
        for linear in (self.inner, self.gate, self.outer):
            if linear is not None:
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)

    def forward(self, x_BTD: Rows) -> Tensor:
        is_relu = self.activation is F.relu
        if is_relu and not (self.training and self.dropout):
            return relu_network(x_BTD, self.inner, self.outer)
        hidden: Tensor = self.inner(x_BTD, relu=True) if is_relu else self.activation(self.inner(x_BTD))
        if self.gate is not None:
            hidden = hidden * self.gate(x_BTD)
        return self.outer(dropout(hidden, self.dropout, self.training))
