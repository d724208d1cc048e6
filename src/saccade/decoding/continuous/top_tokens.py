"""Chooses the likeliest ids that each row may write next, without a table of all log-probabilities."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from saccade.data.text.tokenizer import END, PAD, START, UNKNOWN
from saccade.decoding.continuous.greedy_state import DecodingState, TopTokens
from saccade.decoding.options import DecodingOptions
from saccade.ops.kernels.availability import HAS_TRITON


class _Candidates(NamedTuple):
    """The likeliest ids with their log-probabilities, and that of the id that each row must write, [R, 1]."""

    log_p_RM: Tensor
    token_RM: Tensor
    forced_R1: Tensor | None


def top_tokens(logits_RV: Tensor, state: DecodingState, options: DecodingOptions) -> TopTokens:
    """Return the best ids that `Constraints.log_probabilities` allows, best first; the logits may be overwritten."""
    place_R, count = state.slots.place_R, min(state.num_candidates, logits_RV.shape[1])
    forced_R1 = _forced_ids(state)
    repeated = _repeated_ids(state.read_ids(), place_R, options.no_repeat_ngram) if options.no_repeat_ngram else None
    if logits_RV.device.type == "cuda" and HAS_TRITON and repeated is None:
        best = _select_fused(logits_RV, count, options, place_R, forced_R1)
    else:
        best = _select_plain(logits_RV, count, options, place_R, forced_R1, repeated)
    log_p_RM, token_RM, forced_log_p_R1 = best
    if forced_R1 is not None and forced_log_p_R1 is not None:
        only_RM = torch.full_like(log_p_RM, -torch.inf)
        only_RM[:, :1] = forced_log_p_R1
        is_forced_R1 = forced_R1 != PAD
        log_p_RM = torch.where(is_forced_R1, only_RM, log_p_RM)
        token_RM = torch.where(is_forced_R1, forced_R1, token_RM)
    return TopTokens(log_p_RM, token_RM)


def _select_plain(
    logits_RV: Tensor,
    count: int,
    options: DecodingOptions,
    place_R: Tensor,
    forced_R1: Tensor | None,
    repeated: Tensor | None,
) -> _Candidates:
    is_short_R = place_R < options.min_length if options.min_length else None
    log_p_RV = logits_RV.float().log_softmax(1)
    forced_log_p_R1 = None if forced_R1 is None else log_p_RV.gather(1, forced_R1)
    end_R = log_p_RV[:, END].clone()
    for index in _forbidden_ids(options):
        log_p_RV[:, index].fill_(-torch.inf)
    if repeated is not None:
        log_p_RV.scatter_(1, repeated, -torch.inf)
    if is_short_R is not None:
        log_p_RV[:, END].masked_fill_(is_short_R, -torch.inf)
    best_RM, token_RM = log_p_RV.topk(count, dim=1) if count > 1 else log_p_RV.max(1, keepdim=True)
    if is_short_R is not None:  # no other id is allowed: rather too short than none
        stuck_R = is_short_R & best_RM[:, 0].isneginf()
        token_RM[:, 0] = token_RM[:, 0].masked_fill(stuck_R, END)
        best_RM[:, 0] = torch.where(stuck_R, end_R, best_RM[:, 0])
    return _Candidates(best_RM, token_RM, forced_log_p_R1)


def _select_fused(
    logits_RV: Tensor, count: int, options: DecodingOptions, place_R: Tensor, forced_R1: Tensor | None
) -> _Candidates:
    from saccade.decoding.continuous.kernels.top_tokens import best

    forbidden = sum(1 << index for index in _forbidden_ids(options))
    log_p_RM, token_RM, total_R = best(logits_RV, count, forbidden, END, place_R, options.min_length)
    return _Candidates(
        log_p_RM, token_RM, None if forced_R1 is None else logits_RV.gather(1, forced_R1) - total_R[:, None]
    )


def _forbidden_ids(options: DecodingOptions) -> list[int]:
    return [PAD, START] if options.writes_unknown else [PAD, START, UNKNOWN]


def _forced_ids(state: DecodingState) -> Tensor | None:
    """Return the id that each row must write, [R, 1]; padding where it is free."""
    if not state.size.prefix_steps:
        return None
    at_B1 = state.place_B[:, None]
    inside_B1 = at_B1 < state.size.prefix_steps
    forced_B1 = state.prefix_BP.gather(1, at_B1.clamp(max=state.size.prefix_steps - 1)).where(inside_B1, PAD)
    return forced_B1.repeat_interleave(state.size.width, 0)


def _repeated_ids(ids_RC: Tensor, place_R: Tensor, size: int) -> Tensor:
    """Return ids that would complete an n-gram already written; <s>, which is never written, where there are none."""
    if ids_RC.shape[1] < size:
        return torch.full_like(ids_RC[:, :1], START)
    grams_RCn = ids_RC.unfold(1, size, 1)
    first = torch.arange(grams_RCn.shape[1], device=ids_RC.device)
    back = torch.arange(2 - size, 1, device=ids_RC.device)
    last_R1n = ids_RC.gather(1, (place_R[:, None] + back).clamp(min=0)).unsqueeze(1)
    written_RC = first + size - 1 <= place_R[:, None]
    same_RC = (grams_RCn[..., :-1] == last_R1n).all(-1) & written_RC
    return grams_RCn[..., -1].where(same_RC, START)
