"""Text encoders: from embeddings to one vector for each token, by recurrence, by self-attention, or unchanged.

Every encoder has a `width` and is called as encoder(x_BSD, length_B) -> TextEncoderOutput; padding changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.attention import masks
from saccade.attention.positions import Positions, Relative
from saccade.layers.recurrent.layers import RecurrentEncoder
from saccade.layers.residual import LazySum
from saccade.models.transformer import BlockSizes, EncoderBlock, build_positions
from saccade.ops.dropout import dropout


class TextEncoderOutput(NamedTuple):
    """A vector for each token [B, S, D], and one of the whole text [B, D]: the last state."""

    memory_BSD: Tensor
    last_BD: Tensor


@final
class BagEncoder(nn.Module):
    """h_s = x_s: a bag of words, without their order (Iyyer 2015, section 2.1)."""

    def __init__(self, input_width: int) -> None:
        super().__init__()
        self.width = input_width

    def forward(self, x_BSD: Tensor, length_B: Tensor) -> TextEncoderOutput:
        return TextEncoderOutput(x_BSD, last_steps(x_BSD, length_B))


@final
class RecurrentTextEncoder(nn.Module):
    """h_s = cell(h_s-1, x_s) from the beginning, from the end or both."""

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        cell: str = "gru",
        direction: str = "both",
        num_layers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.width = width
        self.layers = RecurrentEncoder(
            input_width, width, direction=direction, cell=cell, num_layers=num_layers, dropout=dropout
        )

    def forward(self, x_BSD: Tensor, length_B: Tensor) -> TextEncoderOutput:
        """Return the top layer's outputs, zeros behind the length, and its last state (both directions joined)."""
        memory_BSD, hidden = self.layers(x_BSD, length_B)
        return TextEncoderOutput(memory_BSD, hidden[0][-1])


@final
class TransformerTextEncoder(nn.Module):
    """Blocks of self-attention and feed-forward (Vaswani 2017, section 3.1) over a projection of x."""

    def __init__(
        self,
        input_width: int,
        sizes: BlockSizes,
        *,
        num_layers: int = 2,
        max_length: int = 1024,
        kind: str | None = "encoder",
    ) -> None:
        super().__init__()
        self.width, self.sizes = sizes.width, sizes
        self.project = nn.Identity() if input_width == sizes.width else nn.Linear(input_width, sizes.width)
        self.positions = build_positions(sizes, max_length)
        self.bias = Relative(sizes.num_heads, causal=False) if sizes.positions == "relative" else None
        self.blocks = nn.ModuleList(EncoderBlock(sizes, kind) for _ in range(num_layers))
        self.norm = nn.LayerNorm(sizes.width) if sizes.norm == "pre" else nn.Identity()

    def forward(self, x_BSD: Tensor, length_B: Tensor) -> TextEncoderOutput:
        """Return the last block's outputs, and that of the last token."""
        x_BSD, steps = self.project(x_BSD), x_BSD.shape[1]
        place = Positions.following(0, steps, x_BSD.device)
        if self.positions is not None:
            x_BSD = x_BSD + self.positions(place).to(x_BSD.dtype)
        x_BSD = dropout(x_BSD, self.sizes.dropouts.residual, self.training)
        mask = masks.padding(length_B) & self.sizes.encoder_mask()
        bias = None if self.bias is None else self.bias(place, steps)
        x = LazySum(x_BSD)
        for block in self.blocks:
            x = block(x, mask, place, bias)
        memory_BSD = x.end(self.norm)
        return TextEncoderOutput(memory_BSD, last_steps(memory_BSD, length_B))


TextEncoder = BagEncoder | RecurrentTextEncoder | TransformerTextEncoder


def last_steps(x_BSD: Tensor, length_B: Tensor) -> Tensor:
    """Return each row's last real step, [B, D]."""
    return x_BSD[torch.arange(len(x_BSD), device=x_BSD.device), length_B - 1]
