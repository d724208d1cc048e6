"""Attention rollout: the share of each input in each position, by multiplying weights through the layers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Rollout(NamedTuple):
    """The shares in each output step of the output read so far, [T, T], and of the source, [T, S]."""

    read_TT: Tensor
    source_TS: Tensor


def through_residual(weight_HTT: Tensor) -> Tensor:
    """Add the residual to the mean A of the heads: Ã = 0.5 A + 0.5 I (Abnar & Zuidema 2020, section 3)."""
    weight_TT = weight_HTT.mean(0)
    return 0.5 * weight_TT + 0.5 * torch.eye(len(weight_TT), dtype=weight_TT.dtype, device=weight_TT.device)


def rollout(weight_LHSS: Tensor) -> Tensor:
    """Multiply Ã_L ... Ã_2 Ã_1: the share of each input in each position of the last layer, [S, S]."""
    share_SS = torch.eye(weight_LHSS.shape[-1], dtype=weight_LHSS.dtype, device=weight_LHSS.device)
    for weight_HSS in weight_LHSS:
        share_SS = through_residual(weight_HSS) @ share_SS
    return share_SS


def decoder_rollout(own_LHTT: Tensor, cross_LHTS: Tensor, encoder_SS: Tensor) -> Rollout:
    """Multiply through a decoder's layers, over an encoder's rollout E; the rows of both shares together sum to 1.

    Self-attention: [D X] <- Ã_own [D X]. Cross-attention: D <- 0.5 D, X <- 0.5 X + 0.5 A_cross E.
    """
    read_TT = torch.eye(own_LHTT.shape[-1], dtype=own_LHTT.dtype, device=own_LHTT.device)
    source_TS = cross_LHTS.new_zeros(cross_LHTS.shape[-2:])
    for own_HTT, cross_HTS in zip(own_LHTT, cross_LHTS, strict=True):
        own_TT = through_residual(own_HTT)
        read_TT = 0.5 * own_TT @ read_TT
        source_TS = 0.5 * own_TT @ source_TS + 0.5 * cross_HTS.mean(0) @ encoder_SS
    return Rollout(read_TT, source_TS)
