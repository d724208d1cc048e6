# mypy: disable-error-code="no-untyped-def"
"""`BeamState.update` in one kernel: a program, which is one warp, has one sentence.

Of equal candidates the first is better. What the slots know of the rows is written along with them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.data.text.tokenizer import END
from saccade.decoding.continuous.beam_state import BeamState
from saccade.decoding.continuous.greedy_state import TopTokens
from saccade.decoding.continuous.kernels.loops import LoopRules, SentenceTensors, follow_loops, is_checked
from saccade.decoding.continuous.kernels.top_tokens import NOTHING, as_float, in_order
from saccade.ops.kernels.follow import follow
from saccade.ops.kernels.launch import launch_options

COPIED = 1024  # bytes of all rows of a sentence that are on their way at once


class BeamTensors(NamedTuple):
    """Tensors of a beam's state that the kernel reads and writes, beside those that all searches share."""

    scores: Tensor
    back: Tensor
    holder_in_sentence: Tensor | None
    place_of_row: Tensor
    holder: Tensor | None
    worth: Tensor
    ended: Tensor
    num_cut: Tensor
    cuts: Tensor
    lost: Tensor
    share: Tensor
    last_share: Tensor

    @staticmethod
    def of(state: BeamState) -> BeamTensors:
        """Return the tensors of a state."""
        rows = (state.row_BNC, state.slots.place_R, state.slots.holder_RC)
        ends = (state.worth_BM, state.ended_BM3, state.num_cut_B, state.cut_BX2, state.lost_B2)
        return BeamTensors(state.score_BN, state.back_BNC, *rows, *ends, state.share_C, state.last_share_B)


class BeamSizes(NamedTuple):
    """Compile-time constants of the kernel."""

    width: int  # hypotheses of a sentence
    each: int  # extensions of a hypothesis
    taken: int  # extensions that are looked at
    num_best: int
    rows: int  # the power of two that holds the width; so do the next ones for their counts
    candidates: int
    ranks: int
    kept: int
    steps: int  # of all rows that are copied at once

    @staticmethod
    def of(width: int, each: int, num_best: int) -> BeamSizes:
        """Compute the sizes from those of a search."""
        taken = min(2 * width, width * each)
        rows, candidates, ranks, kept = (triton.next_power_of_2(n) for n in (width, width * each, taken, num_best))
        return BeamSizes(width, each, taken, num_best, rows, candidates, ranks, kept, COPIED // rows)


def update(state: BeamState, found: TopTokens) -> Tensor:
    """Take the best of all extensions: keep those that end; N others are the next hypotheses. Return their parents."""
    (batch, width), each = state.score_BN.shape, found.token_RM.shape[1]
    parent_BN = torch.empty_like(state.last_BN)
    update_kernel[(batch,)](
        found.token_RM,
        found.log_p_RM,
        SentenceTensors.of(state),
        BeamTensors.of(state),
        state.loops.run_BNK,
        state.loops.recent_BNK,
        parent_BN,
        state.size.steps,
        SIZES=BeamSizes.of(width, each, state.options.num_best),
        LOOPS=LoopRules(state.options.max_rounds),
        END=END,
        num_warps=1,
        **launch_options(state.device),
    )
    return parent_BN


@triton.jit
def update_kernel(
    token,
    log_p,
    state,
    beam,
    run,
    recent,
    parents,
    num_steps,
    SIZES: tl.constexpr,
    LOOPS: tl.constexpr,
    END: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Update one sentence. All threads read the state before any writes over it."""
    WIDTH: tl.constexpr = SIZES.width
    EACH: tl.constexpr = SIZES.each
    NUM_BEST: tl.constexpr = SIZES.num_best
    RANKS: tl.constexpr = SIZES.ranks
    follow(EARLY)
    sentence = tl.program_id(0).to(tl.int64)
    at, is_live = tl.load(state.place + sentence), tl.load(state.live + sentence) != 0
    most, may_not_loop = tl.load(state.limit + sentence), tl.load(state.guarded + sentence) != 0
    cut_before, share_at_limit = tl.load(beam.num_cut + sentence), tl.load(beam.last_share + sentence)
    scores = beam.scores + sentence * WIDTH

    # the best extensions of all rows, best first
    candidate = tl.arange(0, SIZES.candidates)
    is_one = candidate < WIDTH * EACH
    log_p += sentence * (WIDTH * EACH)
    total = tl.load(scores + candidate // EACH, is_one, 0.0) + tl.load(log_p + candidate, is_one, 0.0)
    left = tl.where(is_one, in_order(tl.where(is_live, total, -float("inf"))), NOTHING)
    rank = tl.arange(0, RANKS)
    order, which = tl.zeros((RANKS,), tl.int32), tl.zeros((RANKS,), tl.int32)
    for i in range(SIZES.taken):
        largest = tl.max(left, 0)
        where = tl.min(tl.where(left == largest, candidate, SIZES.candidates - 1), 0)
        left = tl.where(candidate == where, NOTHING, left)
        order, which = tl.where(rank == i, largest, order), tl.where(rank == i, where, which)
    is_taken = rank < SIZES.taken
    best = tl.where(is_taken, as_float(order), -float("inf"))
    parent = which // EACH
    token += sentence * (WIDTH * EACH)
    ends = tl.load(token + which, is_taken, 0) == END
    step = best - tl.load(scores + parent, is_taken, 0.0)

    # those among the best N that end: the best of all of these so far are kept
    kept = tl.arange(0, SIZES.kept)
    is_kept = kept < NUM_BEST
    worth, ended = beam.worth + sentence * NUM_BEST, beam.ended + sentence * (NUM_BEST * 3)
    old = tl.load(worth + kept, is_kept, -float("inf"))
    old_place = tl.load(ended + kept * 3, is_kept, 0.0)
    old_row = tl.load(ended + kept * 3 + 1, is_kept, 0.0)
    old_step = tl.load(ended + kept * 3 + 2, is_kept, 0.0)
    new = best.to(tl.float64) * tl.load(beam.share + at + 1)
    new = tl.where(ends & (rank < WIDTH), new, -float("inf"))
    is_ahead = (new[None, :] > new[:, None]) | ((new[None, :] == new[:, None]) & (rank[None, :] < rank[:, None]))
    new_rank = tl.sum((is_ahead & (rank < WIDTH)[None, :]).to(tl.int32), 1)
    new_rank += tl.sum(((old[None, :] >= new[:, None]) & is_kept[None, :]).to(tl.int32), 1)
    old_rank = kept + tl.sum(((new[None, :] > old[:, None]) & (rank < WIDTH)[None, :]).to(tl.int32), 1)
    is_new, stays = (rank < WIDTH) & (new_rank < NUM_BEST), is_kept & (old_rank < NUM_BEST)
    worst_new = tl.max(tl.where(is_new & (new_rank == NUM_BEST - 1), new, -float("inf")), 0)
    worst_old = tl.max(tl.where(stays & (old_rank == NUM_BEST - 1), old, -float("inf")), 0)
    worst = tl.maximum(worst_new, worst_old)

    # N that don't end are the next rows
    goes_on = is_taken & (ends == 0) & (best != -float("inf"))
    num_going = tl.sum(goes_on.to(tl.int32), 0)
    ahead = tl.cumsum(goes_on.to(tl.int32), 0) - goes_on.to(tl.int32)
    next_rank = tl.where(goes_on, ahead, num_going + rank - ahead)  # the rest is behind them, in its order
    row = tl.arange(0, SIZES.rows)
    is_row = row < WIDTH
    is_this = (next_rank[None, :] == row[:, None]) & is_taken[None, :]
    row_which = tl.sum(tl.where(is_this, which[None, :], 0), 1)
    row_goes_on = tl.sum((is_this & goes_on[None, :]).to(tl.int32), 1) > 0
    row_order = tl.sum(tl.where(is_this, order[None, :], 0), 1)
    score = tl.where(row_goes_on, as_float(row_order), -float("inf"))
    row_parent = row_which // EACH
    written = tl.load(token + row_which, is_row, 0)
    row_step = score - tl.load(scores + row_parent, is_row, 0.0)
    tl.debug_barrier()  # all of this is read
    tl.store(worth + new_rank, new, is_new)
    tl.store(ended + new_rank * 3, at.to(tl.float64), is_new)
    tl.store(ended + new_rank * 3 + 1, parent.to(tl.float64), is_new)
    tl.store(ended + new_rank * 3 + 2, step.to(tl.float64), is_new)
    tl.store(worth + old_rank, old, stays)
    tl.store(ended + old_rank * 3, old_place, stays)
    tl.store(ended + old_rank * 3 + 1, old_row, stays)
    tl.store(ended + old_rank * 3 + 2, old_step, stays)

    # what they write; in a sentence that is done this falls behind its end
    own, parent_row = sentence * WIDTH + row, sentence * WIDTH + row_parent
    tl.store(state.last + own, written, is_row)
    tl.store(parents + own, row_parent.to(tl.int64), is_row)
    tl.store(state.tokens + own * num_steps + at + 1, written, is_row)
    tl.store(state.log_ps + own * num_steps + at + 1, row_step, is_row)
    tl.store(beam.back + own * num_steps + at + 1, row_parent.to(tl.int64), is_row)

    # the past of a row becomes its parent's; what it writes from now on is its own
    for first in range(0, at + 2, SIZES.steps):
        past = first + tl.arange(0, SIZES.steps)[None, :]
        inside = is_row[:, None] & (past < num_steps)
        holds = tl.load(beam.holder_in_sentence + parent_row[:, None] * num_steps + past, inside, 0).to(tl.int32)
        holds = tl.where(past == at + 1, row[:, None], holds)
        tl.debug_barrier()
        tl.store(beam.holder_in_sentence + own[:, None] * num_steps + past, holds.to(tl.uint8), inside)
        tl.store(beam.holder + own[:, None] * num_steps + past, (sentence * WIDTH).to(tl.int32) + holds, inside)

    # rows that loop are cut; so is what lives in a sentence that is done, where too few ended
    at += is_live.to(tl.int64)
    is_cut = row < 0
    if LOOPS.rounds > 0:
        loops = follow_loops(run, recent, own, parent_row, written, is_row, LOOPS)
        loops = loops & is_checked(at, may_not_loop, LOOPS)
        is_cut = loops & is_row & (tl.abs(score) < float("inf"))
        looped = tl.max(tl.where(is_cut, score, -float("inf")), 0).to(tl.float64) * tl.load(beam.share + at)
        lost_before = tl.load(beam.lost + sentence * 2)
        tl.store(beam.lost + sentence * 2, tl.maximum(lost_before, looped))
        score = tl.where(loops, -float("inf"), score)
    best_left = tl.max(tl.where(is_row, score, -float("inf")), 0)
    cut_now = cut_before + tl.sum(is_cut.to(tl.int64), 0)
    has_enough = tl.abs(worst) < float("inf")
    hope = best_left.to(tl.float64) * share_at_limit
    is_done = (at >= most) | (best_left == -float("inf")) | (cut_now >= WIDTH)
    is_done = is_done | (has_enough & (worst >= hope))
    tl.store(beam.lost + sentence * 2 + 1, hope, is_live & (at >= most))
    is_over = is_live & is_done & (has_enough == 0)
    is_cut = is_cut | (is_over & is_row & (tl.abs(score) < float("inf")))
    to = sentence * (2 * WIDTH + 1) + cut_before + tl.cumsum(is_cut.to(tl.int32), 0) - 1
    tl.store(beam.cuts + to * 2, at, is_cut)
    tl.store(beam.cuts + to * 2 + 1, row.to(tl.int64), is_cut)
    tl.store(beam.num_cut + sentence, cut_before + tl.sum(is_cut.to(tl.int64), 0))
    tl.store(scores + row, score, is_row)
    tl.store(state.place + sentence, at)
    tl.store(beam.place_of_row + own, at, is_row)
    tl.store(state.live + sentence, is_live & (is_done == 0))
