"""Normalisers: scores and a mask in, weights out.

Forbidden keys weigh exactly 0, the allowed ones sum to 1, and a row with no allowed key is all zeros, with zero
gradients. All of them forget a constant added to a row. A NaN among the allowed scores makes the row's weights NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.ops.precision import widen


@final
class Softmax(nn.Module):
    """a_i = exp(e_i) / sum_j exp(e_j) over the allowed keys."""

    def forward(self, score_BTS: Tensor, mask_BTS: Tensor | None = None) -> Tensor:
        """Fill forbidden scores with a finite number: infinity would put NaN into the gradient of an empty row."""
        if mask_BTS is None:
            return score_BTS.softmax(-1)
        lowest = torch.finfo(score_BTS.dtype).min
        return score_BTS.masked_fill(~mask_BTS, lowest).softmax(-1).masked_fill(~mask_BTS, 0.0)


@final
class Sparsemax(nn.Module):
    """a = [e - tau]_+, the nearest point of the simplex (Martins & Astudillo 2016, section 2)."""

    def forward(self, score_BTS: Tensor, mask_BTS: Tensor | None = None) -> Tensor:
        """Return the weights; many of them are exactly 0."""
        shifted_BTS = _shift(score_BTS, mask_BTS)
        support_BTS, size_BT1 = _support(shifted_BTS, _sparsemax_thresholds)
        threshold_BT1 = ((shifted_BTS * support_BTS).sum(-1, keepdim=True) - 1) / size_BT1
        weight_BTS = (shifted_BTS - threshold_BT1) * support_BTS
        return _only_allowed(weight_BTS, mask_BTS).to(score_BTS.dtype)


@final
class Entmax15(nn.Module):
    """a = [e / 2 - tau]_+², halfway between softmax and sparsemax (Peters, Niculae & Martins 2019, section 3)."""

    def forward(self, score_BTS: Tensor, mask_BTS: Tensor | None = None) -> Tensor:
        """Return the weights; some of them are exactly 0."""
        shifted_BTS = _shift(score_BTS / 2, mask_BTS)
        support_BTS, size_BT1 = _support(shifted_BTS, _entmax15_thresholds)
        mean_BT1 = (shifted_BTS * support_BTS).sum(-1, keepdim=True) / size_BT1
        spread_BT1 = ((shifted_BTS - mean_BT1) * support_BTS).square().sum(-1, keepdim=True)
        threshold_BT1 = mean_BT1 - ((1 - spread_BT1) / size_BT1).sqrt()
        weight_BTS = ((shifted_BTS - threshold_BT1) * support_BTS).square()
        return _only_allowed(weight_BTS, mask_BTS).to(score_BTS.dtype)


@final
class Hard(nn.Module):
    """One key is picked: the best one when evaluating, a sampled one when training (Xu 2015, section 4.1).

    `gradient="reinforce"` returns a plain one-hot: learn through `log_probability` and a reward.
    `gradient="straight_through"` returns the one-hot with the gradient of softmax((e + gumbel) / temperature)
    (Jang 2017, section 2.2).
    """

    def __init__(
        self,
        gradient: Literal["reinforce", "straight_through"] = "reinforce",
        *,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        if gradient not in ("reinforce", "straight_through"):
            raise ValueError(f"gradient: {gradient!r} given; allowed: reinforce, straight_through")
        if temperature <= 0:
            raise ValueError(f"temperature: {temperature} given; it must be above 0")
        if gradient == "reinforce" and temperature != 1:
            raise ValueError(f"temperature: {temperature} given; only gradient='straight_through' has one")
        self.gradient, self.temperature = gradient, temperature

    def forward(self, score_BTS: Tensor, mask_BTS: Tensor | None = None) -> Tensor:
        if not self.training:
            return _one_hot(score_BTS, mask_BTS)
        noisy_BTS = score_BTS + _gumbel_like(score_BTS)  # the largest is a sample of softmax(score)
        picked_BTS = _one_hot(noisy_BTS, mask_BTS)
        if self.gradient == "reinforce":
            return picked_BTS
        soft_BTS = Softmax()(noisy_BTS / self.temperature, mask_BTS)
        return picked_BTS + (soft_BTS - soft_BTS.detach())

    def log_probability(self, score_BTS: Tensor, mask_BTS: Tensor | None, weight_BTS: Tensor) -> Tensor:
        """Return log p(picked key) under softmax(score), [..., T], for REINFORCE; 0 where nothing could be picked."""
        score_BTS = widen(score_BTS)
        if mask_BTS is not None:
            score_BTS = score_BTS.masked_fill(~mask_BTS, torch.finfo(score_BTS.dtype).min)
        picked_BT1 = weight_BTS.detach().argmax(-1, keepdim=True)
        found_BT1 = score_BTS.log_softmax(-1).expand_as(weight_BTS).gather(-1, picked_BT1)
        return found_BT1.masked_fill((weight_BTS == 0).all(-1, keepdim=True), 0.0).squeeze(-1)


Normalizer = nn.Module  # called as normalizer(score_BTS, mask_BTS) -> weight_BTS

NORMALIZERS: dict[str, type[Normalizer]] = {
    "softmax": Softmax,
    "sparsemax": Sparsemax,
    "entmax15": Entmax15,
    "hard": Hard,
}


def _support(score_BTS: Tensor, thresholds_of: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Find which keys weigh more than 0, and how many: exact from the sorted scores, and constant to a gradient."""
    with torch.no_grad():
        ordered = score_BTS.sort(-1, descending=True).values
        rank = torch.arange(1, score_BTS.shape[-1] + 1, device=score_BTS.device, dtype=score_BTS.dtype)
        thresholds = thresholds_of(ordered, rank)
        size = (thresholds < ordered).sum(-1, keepdim=True)
        support = score_BTS >= ordered.gather(-1, (size - 1).clamp_min(0))  # of NaN there is none
        return support.to(score_BTS.dtype), support.sum(-1, keepdim=True)


def _sparsemax_thresholds(ordered: Tensor, rank: Tensor) -> Tensor:
    """Return tau if the support were the first 1, 2, ... keys (Martins & Astudillo 2016, algorithm 1)."""
    return (ordered.cumsum(-1) - 1) / rank


def _entmax15_thresholds(ordered: Tensor, rank: Tensor) -> Tensor:
    """Return tau if the support were the first 1, 2, ... keys (Peters, Niculae & Martins 2019, section 3.2)."""
    mean = ordered.cumsum(-1) / rank
    spread = rank * (ordered.square().cumsum(-1) / rank - mean.square())
    return mean - ((1 - spread) / rank).clamp_min(0).sqrt()


def _shift(score_BTS: Tensor, mask_BTS: Tensor | None) -> Tensor:
    """Shift the best allowed score to 0 and raise what is below -2 to -2: outside of any sparse support, and finite."""
    score_BTS = widen(score_BTS)
    if mask_BTS is not None:
        score_BTS = score_BTS.masked_fill(~mask_BTS, torch.finfo(score_BTS.dtype).min)
    best_BT1 = score_BTS.detach().amax(-1, keepdim=True)
    return (score_BTS - best_BT1).clamp_min(-2.0)


def _only_allowed(weight_BTS: Tensor, mask_BTS: Tensor | None) -> Tensor:
    return weight_BTS if mask_BTS is None else weight_BTS.masked_fill(~mask_BTS, 0.0)


def _one_hot(score_BTS: Tensor, mask_BTS: Tensor | None) -> Tensor:
    if mask_BTS is not None:
        score_BTS = score_BTS.masked_fill(~mask_BTS, -torch.inf)
    best_BT1, picked_BT1 = score_BTS.detach().max(-1, keepdim=True)
    picked_BTS = F.one_hot(picked_BT1.squeeze(-1), score_BTS.shape[-1]).to(score_BTS.dtype)
    return _only_allowed(picked_BTS.masked_fill(best_BT1.isnan(), torch.nan), mask_BTS)


def _gumbel_like(score_BTS: Tensor) -> Tensor:
    uniform = torch.rand_like(score_BTS, dtype=torch.float32).clamp(1e-20, 1 - 1e-7)
    return -(-uniform.log()).log().to(score_BTS.dtype)
