# mypy: disable-error-code="no-untyped-def"
"""What `GreedyState.update` does, in one kernel: a program has one sentence."""

from __future__ import annotations

import triton
import triton.language as tl

from saccade.data.text.tokenizer import END
from saccade.decoding.constraints import LONGEST_BLOCK, LONGEST_LOOP, SHORTEST_LOOP
from saccade.decoding.continuous.greedy_state import GreedyState, TopTokens
from saccade.decoding.continuous.kernels.loops import followed, is_looked_at
from saccade.ops.kernels.follow import follow
from saccade.ops.kernels.launch import launch_options


def update(state: GreedyState, found: TopTokens) -> None:
    """One id more, in every sentence that is not done."""
    assert found.token_RM.shape[1] == 1
    update_kernel[(state.size.batch,)](
        found.token_RM,
        found.log_p_RM,
        state.live_B,
        state.place_B,
        state.limit_B,
        state.guarded_B,
        state.last_BN,
        state.token_BNC,
        state.log_p_BNC,
        state.loops.run_BNK,
        state.loops.recent_BNK,
        state.size.steps,
        ROUNDS=state.options.max_rounds,
        BLOCKS=LONGEST_BLOCK,
        SHORTEST=SHORTEST_LOOP,
        LONGEST=LONGEST_LOOP,
        END=END,
        num_warps=1,
        **launch_options(state.device),
    )


@triton.jit
def update_kernel(
    token,
    log_p,
    live,
    place,
    limit,
    guarded,
    last,
    tokens,
    log_ps,
    run,
    recent,
    num_steps,
    ROUNDS: tl.constexpr,
    BLOCKS: tl.constexpr,
    SHORTEST: tl.constexpr,
    LONGEST: tl.constexpr,
    END: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The id is written; the sentence is done if that was the last there may be."""
    follow(EARLY)
    sentence = tl.program_id(0).to(tl.int64)
    written, at, is_live = tl.load(token + sentence), tl.load(place + sentence), tl.load(live + sentence) != 0
    tl.store(last + sentence, written)
    tl.store(tokens + sentence * num_steps + at + 1, written)
    tl.store(log_ps + sentence * num_steps + at + 1, tl.load(log_p + sentence))
    at += is_live.to(tl.int64)
    tl.store(place + sentence, at)
    is_done = (written == END) | (tl.load(limit + sentence) <= at)
    if ROUNDS > 0:
        row = sentence + tl.arange(0, 1)
        is_looping = followed(run, recent, row, row, written + row * 0, row >= 0, ROUNDS, BLOCKS, SHORTEST)
        looks = is_looked_at(at, tl.load(guarded + sentence) != 0, BLOCKS, SHORTEST, LONGEST)
        is_done = is_done | ((tl.max(is_looping.to(tl.int32), 0) > 0) & looks)
    tl.store(live + sentence, is_live & (is_done == 0))
