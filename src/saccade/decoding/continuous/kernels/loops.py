# mypy: disable-error-code="no-untyped-def"
"""What `Loops.follow` does, and which rows go round and round, inside a kernel."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def followed(
    run,
    recent,
    row,
    parent,
    token,
    inside,
    ROUNDS: tl.constexpr,
    BLOCKS: tl.constexpr,
    SHORTEST: tl.constexpr,
):
    """Rows after one id more, each gone on from its parent; whether each ends in enough rounds."""
    block = tl.arange(0, BLOCKS)[None, :]
    from_there, to_here = parent[:, None] * BLOCKS + block, row[:, None] * BLOCKS + block
    before = tl.load(recent + from_there, inside[:, None], 0)
    in_a_row = (tl.load(run + from_there, inside[:, None], 0) + 1) * (before == token[:, None]).to(tl.int64)
    shifted = tl.load(recent + from_there - 1, inside[:, None] & (block > 0), 0)
    tl.debug_barrier()  # all is read before anything is written over
    tl.store(run + to_here, in_a_row, inside[:, None])
    tl.store(recent + to_here, tl.where(block == 0, token[:, None], shifted), inside[:, None])
    size = tl.maximum(ROUNDS * (block + 1), SHORTEST) - (block + 1)
    return tl.max((in_a_row >= size).to(tl.int32), 1) > 0


@triton.jit
def is_looked_at(place, guarded, BLOCKS: tl.constexpr, SHORTEST: tl.constexpr, LONGEST: tl.constexpr):
    """Every few steps; loops that may be are left for a while."""
    return (place % BLOCKS == 0) & (place >= SHORTEST) & (guarded | (place >= LONGEST))
