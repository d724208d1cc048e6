"""The likeliest ids that each row may write next, without a table of all log-probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.data.tokenizer import END, PAD, START, UNKNOWN
from saccade.decoding.board import Board, Likeliest
from saccade.decoding.options import Options


def likeliest(logits_RV: Tensor, board: Board, options: Options) -> Likeliest:
    """What `Constraints.log_probabilities` allows, best first; the logits are written over."""
    total_R1 = logits_RV.float().logsumexp(1, keepdim=True)
    place_R = board.place_B.repeat_interleave(board.size.width)
    end_R, forced_R1 = logits_RV[:, END].clone(), _forced(board)
    forced = None if forced_R1 is None else logits_RV.gather(1, forced_R1)
    logits_RV[:, PAD : START + 1] = -torch.inf
    if not options.writes_unknown:
        logits_RV[:, UNKNOWN] = -torch.inf
    if options.no_repeat_ngram:
        logits_RV.scatter_(1, _repeated(board.ids(), place_R, options.no_repeat_ngram), -torch.inf)
    is_short_R = place_R < options.min_length if options.min_length else None
    if is_short_R is not None:
        logits_RV[:, END] = end_R.masked_fill(is_short_R, -torch.inf)
    best_RM, token_RM = _best(logits_RV, min(board.count, logits_RV.shape[1]))
    if is_short_R is not None:  # nothing else is left to write: rather short than never
        stuck_R = is_short_R & best_RM[:, 0].isneginf()
        token_RM[:, 0] = token_RM[:, 0].masked_fill(stuck_R, END)
        best_RM[:, 0] = torch.where(stuck_R, end_R, best_RM[:, 0])
    if forced_R1 is not None and forced is not None:
        only_RM = torch.full_like(best_RM, -torch.inf)
        only_RM[:, :1] = forced
        is_forced_R1 = forced_R1 != PAD
        best_RM = torch.where(is_forced_R1, only_RM, best_RM)
        token_RM = torch.where(is_forced_R1, forced_R1, token_RM)
    return Likeliest(best_RM.float() - total_R1, token_RM)


def _best(logits_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if count > 1:
        best_RM, token_RM = logits_RV.topk(count, dim=1)
        return best_RM, token_RM
    best_R1, token_R1 = logits_RV.max(1, keepdim=True)
    return best_R1, token_R1


def _forced(board: Board) -> Tensor | None:
    """The id that each row must write, [R, 1]; padding where it is free."""
    if not board.size.prefix_steps:
        return None
    at_B1 = board.place_B[:, None]
    inside_B1 = at_B1 < board.size.prefix_steps
    forced_B1 = board.prefix_BP.gather(1, at_B1.clamp(max=board.size.prefix_steps - 1)).where(inside_B1, PAD)
    return forced_B1.repeat_interleave(board.size.width, 0)


def _repeated(ids_RC: Tensor, place_R: Tensor, size: int) -> Tensor:
    """Ids that would complete an n-gram already written; <s>, which is never written, where there are none."""
    if ids_RC.shape[1] < size:
        return torch.full_like(ids_RC[:, :1], START)
    grams_RCn = ids_RC.unfold(1, size, 1)
    first = torch.arange(grams_RCn.shape[1], device=ids_RC.device)
    back = torch.arange(2 - size, 1, device=ids_RC.device)
    last_R1n = ids_RC.gather(1, (place_R[:, None] + back).clamp(min=0)).unsqueeze(1)
    written_RC = first + size - 1 <= place_R[:, None]
    same_RC = (grams_RCn[..., :-1] == last_R1n).all(-1) & written_RC
    return grams_RCn[..., -1].where(same_RC, START)
