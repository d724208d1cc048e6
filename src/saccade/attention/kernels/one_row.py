"""Scores that don't read the query (mean, concat): one row of weights serves every query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.normalizers import NORMALIZERS
from saccade.attention.scores import Score

REASON = "the weights are the same for every query, so one row is computed"


def refuses(call: Call) -> str | None:
    """Return why the kernel can't run this call, or None."""
    if call.bias is not None:
        return "a bias was given"
    if not isinstance(call.score, Score) or call.score.reads_query:
        return "the score reads the query"
    if call.mask.reads_query_step:
        return "the mask differs from query to query"
    if type(call.normalizer) not in NORMALIZERS.values():
        return "the normalizer is not one of ours: a constant added to a row may change its weights"
    if call.is_random:
        return "each query draws its own dropout or sample"
    if call.num_queries < 2:
        return "there is a single query"
    return None


def run(call: Call, attend: Callable[[Call], Attended]) -> Attended:
    """Attend with the first query; every other gets the same."""
    one = attend(replace(call, query=call.query[..., :1, :]))
    output, weights, log_probability = one

    def repeat(row: Tensor | None, axis: int) -> Tensor | None:
        return None if row is None else row.repeat_interleave(call.num_queries, axis)

    everywhere = repeat(output, -2)
    assert everywhere is not None
    return Attended(everywhere, repeat(weights, -2), repeat(log_probability, -1))
