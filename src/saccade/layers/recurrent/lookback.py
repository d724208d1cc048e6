"""Additions to an RNN's output from its last states: attention to them, or parts of them (Daniluk 2017).

Each has a `width`, that of its outputs, and a `span`, the number of states before a step that it sees. It is called as
lookback(h_BTD, past) -> (output [B, T, width], the past of the steps that follow).
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.attention import NORMALIZERS, SCORES, attend, masks
from saccade.attention.masks import Mask


class LastStates(NamedTuple):
    """The last states of an RNN, [B, S, D], and which of them there are: before a text there was none."""

    state_BSD: Tensor
    real_BS: Tensor

    @staticmethod
    def none(num_rows: int, span: int, width: int, device: torch.device) -> LastStates:
        """Return what is before a text."""
        real_BS = torch.zeros(num_rows, span, dtype=torch.bool, device=device)
        return LastStates(torch.zeros(num_rows, span, width, device=device), real_BS)

    def append(self, later_BTD: Tensor) -> LastStates:
        """Add the states of the steps that follow."""
        state_BSD = torch.cat([self.state_BSD.to(later_BTD.dtype), later_BTD], 1)
        real_BT = torch.ones(later_BTD.shape[:2], dtype=torch.bool, device=later_BTD.device)
        return LastStates(state_BSD, torch.cat([self.real_BS, real_BT], 1))

    def keep(self, span: int) -> LastStates:
        """Return the last so many of them."""
        first = self.state_BSD.shape[1] - span
        return LastStates(self.state_BSD[:, first:], self.real_BS[:, first:])

    def mask(self, span: int) -> Mask:
        """Let each step of those behind the first `span` states see the `span` states before it, if there are any."""
        return masks.causal(offset=span - 1) & masks.window(span, offset=span) & masks.dense(self.real_BS[:, None])


@final
class StateAttention(nn.Module):
    """h*_t = tanh(W [r_t; p_t]), r_t = sum_s a_ts v_s over the last states (Daniluk 2017, section 3).

    A state is key, value and what predicts at once (equations 1-4); or its halves are key, and value and prediction
    (equations 5-8); or its thirds are key, value and prediction (equations 9-10).
    """

    def __init__(
        self, width: int, *, num_parts: int, span: int, score: str = "additive", normalizer: str = "softmax"
    ) -> None:
        super().__init__()
        if width % num_parts:
            raise ValueError(f"width: {width} given; it must be a multiple of {num_parts}, the parts of a state")
        self.width, self.span, self.num_parts = width // num_parts, span, num_parts
        self.kind: str | None = "decoder"
        self.score = SCORES[score](self.width, self.width)
        self.normalizer = NORMALIZERS[normalizer]()
        self.output = nn.Linear(2 * self.width, self.width, bias=False)

    def forward(self, h_BTD: Tensor, past: LastStates, return_weights: bool = False) -> Any:
        """Return outputs and the past of what follows; with `return_weights` between them the weights, [B, T, S]."""
        known = past.append(h_BTD)
        key_BSD, value_BSD, _ = self._split(known.state_BSD)
        query_BTD, _, own_BTD = self._split(h_BTD)
        read_BTD, weight_BTS = attend(
            query_BTD,
            key_BSD,
            value_BSD,
            score=self.score,
            normalizer=self.normalizer,
            mask=known.mask(self.span),
            return_weights=True,
        )
        output_BTD: Tensor = self.output(torch.cat([read_BTD.to(own_BTD.dtype), own_BTD], -1)).tanh()
        after = known.keep(self.span)
        return (output_BTD, weight_BTS, after) if return_weights else (output_BTD, after)

    def value_norms(self, h_BTD: Tensor, past: LastStates, **_: Any) -> Tensor:
        """Return ||W_r v_s||, [B, 1, S]."""
        value_BSD = self._split(past.append(h_BTD).state_BSD)[1]
        norm_BS: Tensor = (value_BSD @ self.output.weight[:, : self.width].mT).norm(dim=-1)
        return norm_BS.unsqueeze(1)

    def _split(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return key, value and prediction of states."""
        parts = state.split(self.width, -1)
        return parts[0], parts[min(1, self.num_parts - 1)], parts[-1]


@final
class NgramStates(nn.Module):
    """h*_t = tanh(W [h^1_t; h^2_t-1; ...; h^N-1_t-N+2]): part i of the state i - 1 steps ago (Daniluk 2017, eq. 11)."""

    def __init__(self, width: int, *, order: int) -> None:
        super().__init__()
        self.num_parts = order - 1
        if width % self.num_parts:
            raise ValueError(f"width: {width} given; it must be a multiple of {self.num_parts}, the parts of a state")
        self.width, self.span = width // self.num_parts, self.num_parts - 1
        self.output = nn.Linear(width, self.width, bias=False)

    def forward(self, h_BTD: Tensor, past: LastStates) -> tuple[Tensor, LastStates]:
        known, steps = past.append(h_BTD), h_BTD.shape[1]
        parts = known.state_BSD.split(self.width, -1)
        shifted = [part[:, self.span - ago : self.span - ago + steps] for ago, part in enumerate(parts)]
        return self.output(torch.cat(shifted, -1)).tanh(), known.keep(self.span)


Lookback = StateAttention | NgramStates
