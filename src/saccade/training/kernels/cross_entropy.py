"""Label-smoothed cross-entropy of rows of logits: a program goes twice over a row, the second time from the cache.

First its largest logit, the sum of exponentials and the sum of logits; then the gradient, written over the logits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS, WARPS = 4096, 8  # of a row at once
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    logits_ptr,
    target_ptr,
    loss_ptr,
    likelihood_ptr,
    stride,
    smoothing,
    VOCABULARY: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row).to(tl.int32)
    logits_ptr += row * stride
    column = tl.arange(0, COLUMNS)
    if target < 0:
        for first in range(0, VOCABULARY, COLUMNS):
            tl.store(logits_ptr + first + column, tl.zeros((COLUMNS,), tl.float32), first + column < VOCABULARY)
        tl.store(loss_ptr + row, 0.0)
        tl.store(likelihood_ptr + row, 0.0)
    else:
        at_target = tl.load(logits_ptr + target).to(tl.float32)
        largest = tl.full((), float("-inf"), tl.float32)
        share, total = tl.zeros((COLUMNS,), tl.float32), tl.zeros((COLUMNS,), tl.float32)
        for first in range(0, VOCABULARY, COLUMNS):
            inside = first + column < VOCABULARY
            logit = tl.load(logits_ptr + first + column, inside, 0.0).to(tl.float32)
            total += logit
            logit = tl.where(inside, logit, float("-inf"))
            before, largest = largest, tl.maximum(largest, tl.max(logit, 0))
            share = share * tl.exp2((before - largest) * LOG2_E) + tl.exp2(logit * LOG2_E - largest * LOG2_E)
        log_sum = largest + tl.log(tl.sum(share, 0))
        uniform = smoothing / VOCABULARY
        tl.store(loss_ptr + row, log_sum - (1.0 - smoothing) * at_target - uniform * tl.sum(total, 0))
        tl.store(likelihood_ptr + row, log_sum - at_target)
        for first in range(0, VOCABULARY, COLUMNS):
            inside = first + column < VOCABULARY
            logit = tl.load(logits_ptr + first + column, inside, 0.0).to(tl.float32)
            wanted = tl.where(first + column == target, 1.0 - smoothing, 0.0) + uniform
            tl.store(logits_ptr + first + column, tl.exp2(logit * LOG2_E - log_sum * LOG2_E) - wanted, inside)


def differentiate_(
    logits_NV: Tensor, target_N: Tensor, smoothing: float, *, columns: int = COLUMNS, warps: int = WARPS
) -> Tensor:
    """Losses and negative log-likelihoods [2, N], float32; the logits become their gradients. A target < 0 is none."""
    num_rows, vocabulary = logits_NV.shape
    result_2N = torch.empty(2, num_rows, dtype=torch.float32, device=logits_NV.device)
    if num_rows:
        _kernel[(num_rows,)](
            logits_NV,
            target_N,
            *result_2N,
            logits_NV.stride(0),
            smoothing,
            VOCABULARY=vocabulary,
            COLUMNS=min(columns, triton.next_power_of_2(vocabulary)),
            num_warps=warps,
        )
    return result_2N
