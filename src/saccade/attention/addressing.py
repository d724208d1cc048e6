"""Addressing of a memory by content and by place: a chain of steps on top of a score (Graves 2014, section 3.3).

content = normalise(β e)                         what the score says, sharpened
gated   = g content + (1 - g) before             or where the head was a step ago
shifted = sum_j s_j gated(i - j)                 moved around the circle of places
weight  = shifted^γ / sum shifted^γ              and made sharp again
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

LEAST = 1e-16  # of a weight whose logarithm is taken


class Moves(NamedTuple):
    """The addressing parameters that heads emit in a step. J counts the shifts from -R to R; T the heads."""

    sharpness_BT1: Tensor  # β > 0
    gate_BT1: Tensor  # g from 0 to 1
    shift_BTJ: Tensor  # s, which sums to 1
    focus_BT1: Tensor  # γ of 1 and more


@final
@dataclass(frozen=True)
class Addressing:
    """A normaliser of `attend` that goes on from where heads were: scores [B, T, S] in, weights out."""

    before_BTS: Tensor
    moves: Moves
    normalizer: Callable[[Tensor, Tensor | None], Tensor]

    def __call__(self, score_BTS: Tensor, mask_BTS: Tensor | None = None) -> Tensor:
        content_BTS = self.normalizer(self.moves.sharpness_BT1 * score_BTS, mask_BTS)
        gated_BTS = torch.lerp(self.before_BTS, content_BTS, self.moves.gate_BT1)
        return sharpen(shift(gated_BTS, self.moves.shift_BTJ), self.moves.focus_BT1)


def shift(weight_BTS: Tensor, shift_BTJ: Tensor) -> Tensor:
    """Move weights around the circle of places: sum_j s_j w(i - j), j from -R to R (equation 8)."""
    reach = shift_BTJ.shape[-1] // 2
    if not reach:
        return weight_BTS * shift_BTJ
    around_BTS = torch.cat([weight_BTS[..., -reach:], weight_BTS, weight_BTS[..., :reach]], -1)
    moved_BTJS = around_BTS.unfold(-1, weight_BTS.shape[-1], 1)  # row R + j holds w(i + j)
    return (shift_BTJ.flip(-1).unsqueeze(-2) @ moved_BTJS).squeeze(-2)


def sharpen(weight_BTS: Tensor, focus_BT1: Tensor) -> Tensor:
    """Compute w^γ / sum w^γ (equation 9), as a softmax of γ log w, which does not underflow."""
    return (focus_BT1 * (weight_BTS + LEAST).log()).softmax(-1)
