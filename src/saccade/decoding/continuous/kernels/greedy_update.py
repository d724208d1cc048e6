# mypy: disable-error-code="no-untyped-def"
"""`GreedyState.update` in one kernel: a program has one sentence."""

from __future__ import annotations

import triton
import triton.language as tl

from saccade.data.text.tokenizer import END
from saccade.decoding.continuous.greedy_state import GreedyState, TopTokens
from saccade.decoding.continuous.kernels.loops import LoopRules, SentenceTensors, follow_loops, is_checked
from saccade.ops.kernels.follow import follow
from saccade.ops.kernels.launch import launch_options


def update(state: GreedyState, found: TopTokens) -> None:
    """Write one more id in every sentence that is not done."""
    assert found.token_RM.shape[1] == 1
    update_kernel[(state.size.batch,)](
        found.token_RM,
        found.log_p_RM,
        SentenceTensors.of(state),
        state.loops.run_BNK,
        state.loops.recent_BNK,
        state.size.steps,
        LOOPS=LoopRules(state.options.max_rounds),
        END=END,
        num_warps=1,
        **launch_options(state.device),
    )


@triton.jit
def update_kernel(
    token,
    log_p,
    state,
    run,
    recent,
    num_steps,
    LOOPS: tl.constexpr,
    END: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Write the id; the sentence is done if it was the last that is allowed."""
    follow(EARLY)
    sentence = tl.program_id(0).to(tl.int64)
    written, at, is_live = (
        tl.load(token + sentence),
        tl.load(state.place + sentence),
        tl.load(state.live + sentence) != 0,
    )
    tl.store(state.last + sentence, written)
    tl.store(state.tokens + sentence * num_steps + at + 1, written)
    tl.store(state.log_ps + sentence * num_steps + at + 1, tl.load(log_p + sentence))
    at += is_live.to(tl.int64)
    tl.store(state.place + sentence, at)
    is_done = (written == END) | (tl.load(state.limit + sentence) <= at)
    if LOOPS.rounds > 0:
        row = sentence + tl.arange(0, 1)
        is_looping = follow_loops(run, recent, row, row, written + row * 0, row >= 0, LOOPS)
        looks = is_checked(at, tl.load(state.guarded + sentence) != 0, LOOPS)
        is_done = is_done | ((tl.max(is_looping.to(tl.int32), 0) > 0) & looks)
    tl.store(state.live + sentence, is_live & (is_done == 0))
