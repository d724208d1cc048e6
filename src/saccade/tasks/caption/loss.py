"""Captioning losses: log p of the words, attention coverage, and REINFORCE (Xu 2015, section 4)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from saccade.data.pictures.captions import CaptionBatch
from saccade.models.captioner import Captioner, PlaceWeights
from saccade.training.losses import smoothed_cross_entropy


class Weights(NamedTuple):
    """Weights of the parts of the loss beside log p of the words; the last two are for hard attention."""

    smoothing: float = 0.0
    coverage: float = 0.0
    reinforce: float = 1.0
    entropy: float = 0.0


def turn_at_random(pixel: Tensor, turning: str) -> Tensor:
    """Swap left and right of half of the pictures [B, ..., Y, X]; `square` also turns them by a half and a quarter."""
    swaps = [lambda one: one.flip(-1)]
    if turning == "square":
        swaps += [lambda one: one.flip(-2), lambda one: one.mT]
    for swap in swaps:
        is_swapped_B = torch.rand(len(pixel), device=pixel.device) < 0.5
        pixel = torch.where(is_swapped_B.view(-1, *[1] * (pixel.dim() - 1)), swap(pixel), pixel)
    return pixel


def caption_loss(
    network: Captioner, batch: CaptionBatch, weights: Weights, *, turning: str = "none"
) -> tuple[Tensor, Tensor]:
    """Return the summed loss, and the summed negative log-likelihood of the words."""
    source = turn_at_random(batch.source, turning) if turning != "none" and network.training else batch.source
    vectors_BTD, attention = network(source, batch.places_B, batch.read_BT)
    real_BT = torch.arange(batch.write_BT.shape[1], device=vectors_BTD.device) < batch.length_B[:, None]
    vectors_ND, write_N = vectors_BTD[real_BT], batch.write_BT[real_BT]
    loss, likelihood = smoothed_cross_entropy(vectors_ND, network.output.weight, write_N, smoothing=weights.smoothing)
    if weights.coverage:
        loss = loss + weights.coverage * coverage_penalty(attention.expected_BTS, real_BT)
    if network.is_hard and network.training:
        log_p_BT = words_log_p(network, vectors_BTD, batch.write_BT, real_BT)
        loss = loss + policy_loss(network, log_p_BT, attention, real_BT, weights)
    return loss, likelihood


def coverage_penalty(weight_BTS: Tensor, real_BT: Tensor) -> Tensor:
    """sum_i (1 - sum_t a_ti)²: each place should be looked at once in all (doubly stochastic; Xu 2015, 4.2.1)."""
    return (1 - (weight_BTS * real_BT[..., None]).sum(1)).square().sum()


@torch.no_grad()
def words_log_p(network: Captioner, vectors_BTD: Tensor, write_BT: Tensor, real_BT: Tensor) -> Tensor:
    """log p of each word to write, [B, T]; 0 behind the end."""
    log_p_NV = network.logits(vectors_BTD[real_BT]).log_softmax(-1)
    found_BT = log_p_NV.new_zeros(real_BT.shape)
    found_BT[real_BT] = log_p_NV.gather(1, write_BT[real_BT][:, None])[:, 0]
    return found_BT


def policy_loss(
    network: Captioner, log_p_BT: Tensor, attention: PlaceWeights, real_BT: Tensor, weights: Weights
) -> Tensor:
    """-λ_r sum_t (R_t - b) log p(s_t) - λ_e sum_t H(s_t), b a moving average (REINFORCE; Xu 2015, section 4.1).

    A place can only help the words from its own on, so R_t - b is the sum of their log p - b, b that of one word.
    """
    sampled_BT = real_BT & (attention.log_probability_BT != 0)
    gain_BT = (log_p_BT - network.baseline).masked_fill(~real_BT, 0.0)
    later_BT = gain_BT.flip(1).cumsum(1).flip(1)
    network.remember(log_p_BT[sampled_BT].mean())
    entropy_BT = torch.special.entr(attention.expected_BTS.clamp_min(1e-30)).sum(-1)
    reward = (later_BT * attention.log_probability_BT * sampled_BT).sum()
    return -weights.reinforce * reward - weights.entropy * (entropy_BT * real_BT).sum()
