"""Scores that don't read the query (mean, concat): one row of weights serves every query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
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
    """Attend with the first query; every other gets the same, or NaN where the score makes NaN of it."""
    first = call.query[..., :1, :]
    single = replace(call, query=first.masked_fill(~first.isfinite(), 0.0))
    row, mask_B1S = attend(single), single.dense_mask()
    unknown_BTS = call.score(call.query.detach(), torch.zeros_like(call.memory)).isnan()
    unknown_BTS = unknown_BTS if mask_B1S is None else unknown_BTS & mask_B1S
    unknown_BT = unknown_BTS.any(-1)

    def repeat(row: Tensor | None, axis: int, unknown: Tensor) -> Tensor | None:
        return None if row is None else row.repeat_interleave(call.num_queries, axis).masked_fill(unknown, torch.nan)

    output = repeat(row.output, -2, unknown_BT[..., None])
    assert output is not None
    return Attended(output, repeat(row.weights, -2, unknown_BTS), repeat(row.log_probability, -1, unknown_BT))
