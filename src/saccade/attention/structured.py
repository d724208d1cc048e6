"""Structured self-attention: a sentence as r weighted sums of its words (Lin 2017, section 2)."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.attention.attend import attend
from saccade.attention.call import MaskLike
from saccade.attention.normalizers import Softmax


class StructuredSummary(NamedTuple):
    """r summaries [B, r, D], their weights [B, r, S], and ||A Aᵀ - I||² for each sentence [B]."""

    output: Tensor
    weights: Tensor
    penalty: Tensor


@final
class StructuredSelfAttention(nn.Module):
    """A = softmax(W2 tanh(W1 Hᵀ)), M = A H; the penalty ||A Aᵀ - I||² keeps the r hops apart.

    W1: [hidden_width, D], W2: [num_hops, hidden_width].
    """

    def __init__(self, width: int, *, hidden_width: int, num_hops: int) -> None:
        super().__init__()
        for name, number in (("width", width), ("hidden_width", hidden_width), ("num_hops", num_hops)):
            if number < 1:
                raise ValueError(f"{name}: {number} given; it must be 1 or more")
        self.W1 = nn.Parameter(torch.randn(hidden_width, width) * width**-0.5)
        self.W2 = nn.Parameter(torch.randn(num_hops, hidden_width) * hidden_width**-0.5)
        self.normalizer = Softmax()

    def forward(self, hidden_BSD: Tensor, *, mask: MaskLike = None) -> StructuredSummary:
        """Attend by each hop: a learned query, W2's row, that scores tanh(W1 h) by dot product."""
        key_BSA = torch.tanh(hidden_BSD @ self.W1.mT)
        output, weights = attend(
            self.W2, key_BSA, hidden_BSD, score="dot", normalizer=self.normalizer, mask=mask, return_weights=True
        )
        overlap = weights @ weights.mT - torch.eye(self.W2.shape[0], device=weights.device, dtype=weights.dtype)
        return StructuredSummary(output, weights, overlap.square().sum((-2, -1)))
