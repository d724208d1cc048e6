"""Views derived from recorded weights: pooled over heads, rolled out through the layers, or by norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Rollout(NamedTuple):
    """Of each output step: the share that rests on what was read so far [T, T], and on the source [T, S]."""

    read_TT: Tensor
    source_TS: Tensor


def through_residual(weight_TT: Tensor) -> Tensor:
    """Ã = 0.5 A + 0.5 I: half of what leaves a layer went around its attention (Abnar & Zuidema 2020, section 3)."""
    return 0.5 * weight_TT + 0.5 * torch.eye(len(weight_TT), dtype=weight_TT.dtype, device=weight_TT.device)


def rollout(weight_LHSS: Tensor) -> Tensor:
    """Ã_L ... Ã_2 Ã_1, each the mean of its heads: what each position of the last layer is made of, [S, S]."""
    share_SS = torch.eye(weight_LHSS.shape[-1], dtype=weight_LHSS.dtype, device=weight_LHSS.device)
    for weight_HSS in weight_LHSS:
        share_SS = through_residual(weight_HSS.mean(0)) @ share_SS
    return share_SS


def decoder_rollout(own_LHTT: Tensor, cross_LHTS: Tensor, encoder_SS: Tensor) -> Rollout:
    """The same through a decoder's layers, over an encoder's rollout E; the rows of both shares together sum to 1.

    Own attention: [D X] <- Ã_own [D X]. Cross-attention: D <- 0.5 D, X <- 0.5 X + 0.5 A_cross E.
    """
    read_TT = torch.eye(own_LHTT.shape[-1], dtype=own_LHTT.dtype, device=own_LHTT.device)
    source_TS = cross_LHTS.new_zeros(cross_LHTS.shape[-2:])
    for own_HTT, cross_HTS in zip(own_LHTT, cross_LHTS, strict=True):
        own_TT = through_residual(own_HTT.mean(0))
        read_TT = 0.5 * own_TT @ read_TT
        source_TS = 0.5 * own_TT @ source_TS + 0.5 * cross_HTS.mean(0) @ encoder_SS
    return Rollout(read_TT, source_TS)


def shares(norm_TS: Tensor) -> Tensor:
    """Each row divided by its sum; a row of zeros stays one. Takes leading axes.

    Of norms ||a_ts f(x_s)||, what each key's transformed value adds (Kobayashi 2020, section 3): a large weight on a
    vector of almost no length counts for little.
    """
    total_T1 = norm_TS.sum(-1, keepdim=True)
    return norm_TS / total_T1.where(total_T1 > 0, 1)


def to_words(weight_TS: Tensor, word_of_query: Sequence[int], word_of_key: Sequence[int]) -> Tensor:
    """From pieces to words, [..., T, S] to [..., words, words]: keys are summed, queries averaged.

    What is read of a word is what is read of its pieces; what a word reads is what its pieces read on average. Rows
    that summed to 1 still do.
    """
    query_WT, key_WS = (_members(word_of).to(weight_TS) for word_of in (word_of_query, word_of_key))
    return (query_WT / query_WT.sum(1, keepdim=True)) @ weight_TS @ key_WS.T


def _members(word_of_piece: Sequence[int]) -> Tensor:
    """1 where a piece belongs to a word."""
    word_P = torch.tensor(word_of_piece)
    return (torch.arange(int(word_P.max()) + 1)[:, None] == word_P).float()
