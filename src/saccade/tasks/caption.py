"""Captions."""
from __future__ import annotations
from typing import NamedTuple, final
import torch
from torch import Tensor
from saccade.models.captioner import Captioner, Glance
from saccade.training.losses import smoothed_cross_entropy


class CaptionBatch(NamedTuple):
    """Pictures or feature maps, and captions read from <s> on and written up to </s>."""

    source: Tensor
    places_B: Tensor
    read_BT: Tensor
    write_BT: Tensor
    length_B: Tensor

    def to(self, device: torch.device) -> CaptionBatch:
        """The same on a device."""
        return CaptionBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @property
    def num_items(self) -> int:
        """Words to write, </s> included."""
        return int(self.length_B.sum())


class Weights(NamedTuple):
    """What counts how much in the loss beside log p of the words (Xu 2015, sections 4.1 and 4.2.1)."""

    smoothing: float = 0.0
    coverage: float = 0.0
    reinforce: float = 1.0
    entropy: float = 0.0


def caption_loss(network: Captioner, batch: CaptionBatch, weights: Weights) -> tuple[Tensor, Tensor]:
    """The summed loss, and the summed negative log-likelihood of the words."""
    vectors_BTD, glance = network(batch.source, batch.places_B, batch.read_BT)
    real_BT = torch.arange(batch.write_BT.shape[1], device=vectors_BTD.device) < batch.length_B[:, None]
    vectors_ND, write_N = vectors_BTD[real_BT], batch.write_BT[real_BT]
    loss, likelihood = smoothed_cross_entropy(vectors_ND, network.output.weight, write_N, smoothing=weights.smoothing)
    if weights.coverage:
        loss = loss + weights.coverage * uncovered(glance.expected_BTS, real_BT)
    if network.is_hard and network.training:
        loss = loss + policy_loss(network, vectors_ND.detach(), write_N, glance, real_BT, weights)
    return loss, likelihood


def uncovered(weight_BTS: Tensor, real_BT: Tensor) -> Tensor:
    """sum_i (1 - sum_t a_ti)²: every place should be looked at once (doubly stochastic attention, Xu 2015, 4.2.1)."""
    return (1 - (weight_BTS * real_BT[..., None]).sum(1)).square().sum()


def policy_loss(
    network: Captioner, vectors_ND: Tensor, write_N: Tensor, glance: Glance, real_BT: Tensor, weights: Weights
) -> Tensor:
    """-sum_t (R_t - b) log p(s_t) - H(s_t): REINFORCE with a moving baseline (Xu 2015, section 4.1).

    R_t - b is the sum over the words from t on of log p - b, since a place can only help those.
    """
    with torch.no_grad():
        log_p_N = network.logits(vectors_ND).log_softmax(-1).gather(1, write_N[:, None])[:, 0]
        gain_BT = torch.zeros_like(real_BT, dtype=log_p_N.dtype)
        gain_BT[real_BT] = log_p_N - network.baseline
        later_BT = gain_BT.flip(1).cumsum(1).flip(1)
        sampled_BT = real_BT & (glance.log_probability_BT != 0)
        network.remember(log_p_N.mean())
    entropy_BT = torch.special.entr(glance.expected_BTS.clamp_min(1e-30)).sum(-1)
    reward = (later_BT * glance.log_probability_BT)[sampled_BT].sum()
    return -weights.reinforce * reward - weights.entropy * entropy_BT[real_BT].sum()
