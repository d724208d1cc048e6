"""Poolings: many vectors into one by the mean, the last state, the maximum, or attention with a learned query.

Every pooling has a `width` and is called as pooling(memory_BSD, last_BD, length_B) -> PoolingResult.
"""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.attention import NORMALIZERS, SCORES, attend, masks
from saccade.attention.normalizers import Hard
from saccade.attention.scores import Score
from saccade.attention.structured import StructuredSelfAttention


class PoolingResult(NamedTuple):
    """One vector a row [B, D], and the weights [B, r, S] and their penalty [B] of a pooling that has them."""

    vector_BD: Tensor
    weight_BTS: Tensor | None = None
    penalty_B: Tensor | None = None


class WeighedPooling(nn.Module):
    """A pooling whose weights can be recorded; its hops are heads, and its one query is the label's."""

    kind: str | None = "pooling"

    def value_norms(self, memory_BSD: Tensor, *_: Tensor) -> Tensor:
        """Return the lengths of the vectors that are pooled, [B, 1, S]."""
        return memory_BSD.norm(dim=-1).unsqueeze(1)


@final
class MeanPooling(WeighedPooling):
    """v = sum_s h_s / n: attention that scores every word alike."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, memory_BSD: Tensor, last_BD: Tensor, length_B: Tensor) -> PoolingResult:
        output_B1D, weight_B1S = attend(
            last_BD.unsqueeze(1),
            memory_BSD,
            memory_BSD,
            score="mean",
            mask=masks.padding(length_B),
            return_weights=True,
        )
        return PoolingResult(output_B1D.squeeze(1), weight_B1S)


@final
class LastPooling(nn.Module):
    """v = h_n, the state that has read everything; it has no weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, memory_BSD: Tensor, last_BD: Tensor, length_B: Tensor) -> PoolingResult:
        del memory_BSD, length_B
        return PoolingResult(last_BD)


@final
class MaxPooling(WeighedPooling):
    """v_d = max_s h_sd; a word's weight is the share of the D maxima that are its own (Conneau 2017, section 3.2.2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, memory_BSD: Tensor, last_BD: Tensor, length_B: Tensor) -> PoolingResult:
        """Return the maxima over real steps; padding never wins."""
        del last_BD
        steps = memory_BSD.shape[1]
        padding_BS1 = ~masks.padding(length_B).dense(1, steps, device=memory_BSD.device).mT
        vector_BD, winner_BD = memory_BSD.masked_fill(padding_BS1, torch.finfo(memory_BSD.dtype).min).max(1)
        share_BD = torch.full_like(vector_BD, 1 / self.width)
        weight_BS = vector_BD.new_zeros(len(vector_BD), steps).scatter_add(1, winner_BD, share_BD)
        return PoolingResult(vector_BD, weight_BS.unsqueeze(1))


@final
class AttentionPooling(WeighedPooling):
    """v = sum_s a_s h_s, a = normalise(score(q, h)) with a learned query q (Yang 2016, section 2.2; any score)."""

    def __init__(self, width: int, *, score: str = "additive", normalizer: str = "softmax") -> None:
        super().__init__()
        self.width = width
        self.query_1D = nn.Parameter(torch.randn(1, width) * width**-0.5)
        self.score: Score = SCORES[score](width, width)
        # the straight-through estimator gives the query a gradient
        self.normalizer = Hard("straight_through") if normalizer == "hard" else NORMALIZERS[normalizer]()

    def forward(self, memory_BSD: Tensor, last_BD: Tensor, length_B: Tensor) -> PoolingResult:
        del last_BD
        output_B1D, weight_B1S = attend(
            self.query_1D.expand(len(memory_BSD), 1, self.width),
            memory_BSD,
            memory_BSD,
            score=self.score,
            normalizer=self.normalizer,
            mask=masks.padding(length_B),
            return_weights=True,
        )
        return PoolingResult(output_B1D.squeeze(1), weight_B1S)


@final
class StructuredPooling(WeighedPooling):
    """v = [m_1; ...; m_r], r attentions kept apart by ||A Aᵀ - I||² (Lin 2017, section 2)."""

    def __init__(self, width: int, *, num_hops: int, hidden_width: int) -> None:
        super().__init__()
        self.width = num_hops * width
        self.attention = StructuredSelfAttention(width, hidden_width=hidden_width, num_hops=num_hops)

    def forward(self, memory_BSD: Tensor, last_BD: Tensor, length_B: Tensor) -> PoolingResult:
        del last_BD
        output_BTD, weight_BTS, penalty_B = self.attention(memory_BSD, mask=masks.padding(length_B))
        return PoolingResult(output_BTD.flatten(1), weight_BTS, penalty_B)


Pooling = MeanPooling | LastPooling | MaxPooling | AttentionPooling | StructuredPooling
