"""Dialogue context: encodes the preceding utterances and the current one into a vector.

Every context has a `width` and is called as context(window_BWD, length_B) -> [B, width]; it reads nothing behind a
row's length, so a text never sees one that follows it.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from saccade.attention import NORMALIZERS, SCORES, attend, masks
from saccade.attention.scores import Score
from saccade.layers.recurrent.layers import RecurrentEncoder


@final
class RecurrentContext(nn.Module):
    """c_t = cell(c_t-1, u_t) over the window, from its oldest text to the current one."""

    def __init__(self, input_width: int, width: int, *, cell: str = "gru") -> None:
        super().__init__()
        self.width = width
        self.layers = RecurrentEncoder(input_width, width, direction="forward", cell=cell, num_layers=1, dropout=0.0)

    def forward(self, window_BWD: Tensor, length_B: Tensor) -> Tensor:
        """Return the state after the last text."""
        _, hidden = self.layers(window_BWD, length_B)
        return hidden[0][-1]


@final
class AttentionContext(nn.Module):
    """c = sum_j a_j u_j, a = normalise(score(u_t, u_j + p_t-j)): a text attends to itself and those before it."""

    def __init__(self, width: int, *, longest: int, score: str = "additive", normalizer: str = "softmax") -> None:
        super().__init__()
        self.width = width
        self.distance_WD = nn.Parameter(torch.zeros(longest, width))
        self.score: Score = SCORES[score](width, width)
        self.normalizer = NORMALIZERS[normalizer]()

    def forward(self, window_BWD: Tensor, length_B: Tensor) -> Tensor:
        """Return the weighted sum [B, D]; the current text is one of the keys."""
        step_W = torch.arange(window_BWD.shape[1], device=window_BWD.device)
        distance_BW = (length_B[:, None] - 1 - step_W).clamp(min=0)
        query_B1D = window_BWD.take_along_dim((length_B - 1)[:, None, None], 1)
        found_B1D = attend(
            query_B1D,
            window_BWD + self.distance_WD[distance_BW],
            window_BWD,
            score=self.score,
            normalizer=self.normalizer,
            mask=masks.padding(length_B),
        )
        return found_B1D.squeeze(1)


Context = RecurrentContext | AttentionContext
