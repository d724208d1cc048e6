# mypy: disable-error-code="no-untyped-def"
"""Parts that the kernels of greedy and beam search share: the state of sentences, and the detection of loops."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from saccade.decoding.constraints import LONGEST_BLOCK, LONGEST_LOOP, SHORTEST_LOOP
from saccade.decoding.continuous.greedy_state import DecodingState


class SentenceTensors(NamedTuple):
    """Tensors of the state that all searches share."""

    live: Tensor
    place: Tensor
    limit: Tensor
    guarded: Tensor
    last: Tensor
    tokens: Tensor
    log_ps: Tensor

    @staticmethod
    def of(state: DecodingState) -> SentenceTensors:
        """Return the tensors of a state."""
        rows = (state.last_BN, state.token_BNC, state.log_p_BNC)
        return SentenceTensors(state.live_B, state.place_B, state.limit_B, state.guarded_B, *rows)


class LoopRules(NamedTuple):
    """Rules for when a row counts as a loop, as in `decoding.constraints`."""

    rounds: int
    blocks: int = LONGEST_BLOCK
    shortest: int = SHORTEST_LOOP
    longest: int = LONGEST_LOOP


@triton.jit
def follow_loops(run, recent, row, parent, token, inside, LOOPS: tl.constexpr):
    """Count rounds after one more id in each row, which goes on from its parent; return which rows end in enough."""
    BLOCKS: tl.constexpr = LOOPS.blocks
    block = tl.arange(0, BLOCKS)[None, :]
    from_there, to_here = parent[:, None] * BLOCKS + block, row[:, None] * BLOCKS + block
    before = tl.load(recent + from_there, inside[:, None], 0)
    in_a_row = (tl.load(run + from_there, inside[:, None], 0) + 1) * (before == token[:, None]).to(tl.int64)
    shifted = tl.load(recent + from_there - 1, inside[:, None] & (block > 0), 0)
    tl.debug_barrier()  # all is read before anything is written over
    tl.store(run + to_here, in_a_row, inside[:, None])
    tl.store(recent + to_here, tl.where(block == 0, token[:, None], shifted), inside[:, None])
    size = tl.maximum(LOOPS.rounds * (block + 1), LOOPS.shortest) - (block + 1)
    return tl.max((in_a_row >= size).to(tl.int32), 1) > 0


@triton.jit
def is_checked(place, guarded, LOOPS: tl.constexpr):
    """Tell whether loops are cut at this place: every few steps, and later where they are allowed for a while."""
    return (place % LOOPS.blocks == 0) & (place >= LOOPS.shortest) & (guarded | (place >= LOOPS.longest))
