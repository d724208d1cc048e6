"""Where a token stands: sinusoidal or learned positions, added to embeddings."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn


@final
class Sinusoidal(nn.Module):
    """p_2i = sin(t / 10000^(2i/D)), p_2i+1 = cos(t / 10000^(2i/D)) (Vaswani 2017, section 3.5). Any length."""

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"width: {width} given; sinusoidal positions need an even one")
        rate_half = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
        self.register_buffer("rate_half", rate_half, persistent=False)

    def forward(self, first: int, count: int) -> Tensor:
        """Positions first .. first + count - 1, [T, D]."""
        rate_half = self.get_buffer("rate_half")
        angle = torch.arange(first, first + count, device=rate_half.device)[:, None] * rate_half
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


@final
class Learned(nn.Module):
    """A vector for each position, up to `max_length` (Gehring 2017, section 3.1)."""

    def __init__(self, width: int, *, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_length, width) * width**-0.5)

    def forward(self, first: int, count: int) -> Tensor:
        """Positions first .. first + count - 1, [T, D]."""
        if first + count > self.table.shape[0]:
            raise ValueError(f"positions: {first + count} steps given; learned positions end at {self.table.shape[0]}")
        return self.table[first : first + count]


POSITIONS = {"sinusoidal": Sinusoidal, "learned": Learned}
