"""Attention that knows where it was: a score whose keys hear of the weights so far (Chorowski 2015, section 2.1)."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.attention import NORMALIZERS, SCORES, attend, masks


class Reading(NamedTuple):
    """The values [B, S, D] of a source, what the score made of them, and their lengths."""

    value_BSD: Tensor
    memory_BSM: Tensor
    length_B: Tensor


@final
class LocationSensitiveAttention(nn.Module):
    """e_ts = score(q_t, k_s + F * [a_t-1; a_1 + ... + a_t-1]): a convolution of the last weights and of their sum.

    With the additive score, e = vᵀ tanh(W q + U k + U' f + b), equation 9 of Chorowski 2015, with the sum of Shen 2018,
    section 2.2. `memory` is the score's own; what the convolution adds to it is as wide.
    """

    kind = "cross"

    def __init__(
        self, query_width: int, width: int, *, score: str = "additive", normalizer: str = "softmax", reach: int = 15
    ) -> None:
        super().__init__()
        needs_equal = SCORES[score].equal_widths
        self.query = nn.Linear(query_width, width) if needs_equal else nn.Identity()
        self.score = SCORES[score](width if needs_equal else query_width, width)
        self.normalizer = NORMALIZERS[normalizer]()
        memory_width = self.score.memory_width
        assert memory_width
        self.location = nn.Conv1d(2, memory_width, 2 * reach + 1, padding=reach, bias=False)

    def read(self, value_BSD: Tensor, length_B: Tensor) -> Reading:
        """Compute once what depends on the source alone."""
        return Reading(value_BSD, self.score.memory(value_BSD), length_B)

    def begin(self, value_BSD: Tensor) -> Tensor:
        """Return the last weights and their sum before the first step, [B, 2, S]: all at the first place."""
        past_B2S = value_BSD.new_zeros(len(value_BSD), 2, value_BSD.shape[1])
        past_B2S[..., 0] = 1
        return past_B2S

    def forward(self, query_BD: Tensor, source: Reading, past_B2S: Tensor, return_weights: bool = False) -> Any:
        """Return the context [B, D] and the past of the next step; between them the weights, [B, 1, S]."""
        memory_BSM = source.memory_BSM + self.location(past_B2S).mT
        context_B1D, weight_B1S = attend(
            self.query(query_BD).unsqueeze(1),
            None,
            source.value_BSD,
            memory=memory_BSM,
            score=self.score,
            normalizer=self.normalizer,
            mask=masks.padding(source.length_B),
            return_weights=True,
        )
        after_B2S = torch.cat([weight_B1S, past_B2S[:, 1:] + weight_B1S], 1)
        context_BD = context_B1D.squeeze(1)
        return (context_BD, weight_B1S, after_B2S) if return_weights else (context_BD, after_B2S)

    def value_norms(self, _query_BD: Tensor, source: Reading, *_: Any, **__: Any) -> Tensor:
        """Return the lengths of the encoder's vectors, [B, 1, S]."""
        return source.value_BSD.norm(dim=-1).unsqueeze(1)
