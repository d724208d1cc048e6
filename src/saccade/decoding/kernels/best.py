# mypy: disable-error-code="no-untyped-def"
"""The largest logits of each row and its log-sum-exp, in one pass over the logits.

A program reads a part of a row once and gives its few largest and its sum; a second kernel joins the parts. A logit and
its id are one number, whose order is that of the logits, and between equal ones the lower id's first.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.chained import launch
from saccade.attention.kernels.follow import follow

PART = 4096  # logits of a program, if only the largest is wanted
NOTHING = tl.constexpr(-(1 << 63))  # below every logit


def best(logits_RV: Tensor, count: int, forbidden: int, end: int, short_R: Tensor | None) -> tuple[Tensor, ...]:
    """The largest `count` allowed logits of each row less its log-sum-exp, their ids, and the log-sum-exp [R].

    `forbidden` is a set of ids below 31, as bits; rows of `short_R` may not write `end` either, unless it is
    all that there is.
    """
    num_rows, num_ids = logits_RV.shape
    assert logits_RV.stride(1) == 1
    part, warps = (PART, 8) if count == 1 else (PART // 4, 1)  # warps would wait for each other at every rank
    part = min(part, triton.next_power_of_2(num_ids))
    num_parts = triton.cdiv(num_ids, part)
    key = torch.empty(num_rows, num_parts, count, dtype=torch.int64, device=logits_RV.device)
    total = torch.empty(num_rows, num_parts, dtype=torch.float32, device=logits_RV.device)
    log_p = torch.empty(num_rows, count, dtype=torch.float32, device=logits_RV.device)
    token = torch.empty(num_rows, count, dtype=torch.int64, device=logits_RV.device)
    total_R = torch.empty(num_rows, dtype=torch.float32, device=logits_RV.device)
    part_kernel[(num_parts, num_rows)](
        logits_RV,
        logits_RV if short_R is None else short_R,
        key,
        total,
        num_parts,
        STRIDE=logits_RV.stride(0),
        NUM_IDS=num_ids,
        FORBIDDEN=forbidden,
        END=end,
        SHORT=short_R is not None,
        COUNT=count,
        PART=part,
        num_warps=warps,
        **launch(logits_RV.device),
    )
    join_kernel[(num_rows,)](
        logits_RV,
        logits_RV if short_R is None else short_R,
        key,
        total,
        log_p,
        token,
        total_R,
        num_parts,
        STRIDE=logits_RV.stride(0),
        NUM_IDS=num_ids,
        END=end,
        SHORT=short_R is not None,
        COUNT=count,
        KEYS=triton.next_power_of_2(num_parts * count),
        PARTS=triton.next_power_of_2(num_parts),
        num_warps=1 if num_parts * count <= 128 else 4,
        **launch(logits_RV.device),
    )
    return log_p, token, total_R


@triton.jit
def part_kernel(
    logits,
    short,
    key,
    total,
    num_parts,
    STRIDE: tl.constexpr,  # as constants, these show the compiler what is aligned
    NUM_IDS: tl.constexpr,
    FORBIDDEN: tl.constexpr,
    END: tl.constexpr,
    SHORT: tl.constexpr,
    COUNT: tl.constexpr,
    PART: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Of a part of a row the largest, one after the other, and log sum exp."""
    follow(EARLY)
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    at = part * PART + tl.arange(0, PART)
    x = tl.load(logits + row * STRIDE + at, at < NUM_IDS, -float("inf")).to(tl.float32)
    top = tl.max(x, 0)
    top = tl.where(top == -float("inf"), 0.0, top)
    summed = tl.sum(tl.exp(x - top), 0)
    log_sum = tl.where(summed > 0, top + tl.log(tl.maximum(summed, 1e-30)), -float("inf"))
    tl.store(total + row * num_parts + part, log_sum)
    is_forbidden = (at < 31) & (((FORBIDDEN >> tl.minimum(at, 30)) & 1) == 1)
    if SHORT:
        is_forbidden |= (at == END) & (tl.load(short + row) != 0)
    x = tl.where(is_forbidden, -float("inf"), x)
    bits = x.to(tl.int32, bitcast=True)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # as integers in the order of the floats
    keys = (order.to(tl.int64) << 32) | (NUM_IDS - at).to(tl.int64)
    keys = tl.where(at < NUM_IDS, keys, NOTHING)
    for rank in tl.static_range(COUNT):
        largest = tl.max(keys, 0)
        tl.store(key + (row * num_parts + part) * COUNT + rank, largest)
        keys = tl.where(keys == largest, NOTHING, keys)


@triton.jit
def join_kernel(
    logits,
    short,
    key,
    total,
    log_p,
    token,
    total_R,
    num_parts,
    STRIDE: tl.constexpr,
    NUM_IDS: tl.constexpr,
    END: tl.constexpr,
    SHORT: tl.constexpr,
    COUNT: tl.constexpr,
    KEYS: tl.constexpr,
    PARTS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The largest of all parts of a row; what is not there has no probability."""
    follow(EARLY)
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    sums = tl.load(total + row * num_parts + part, part < num_parts, -float("inf"))
    top = tl.max(sums, 0)
    top = tl.where(top == -float("inf"), 0.0, top)
    whole = top + tl.log(tl.sum(tl.exp(sums - top), 0))
    tl.store(total_R + row, whole)
    at = tl.arange(0, KEYS)
    keys = tl.load(key + row * num_parts * COUNT + at, at < num_parts * COUNT, NOTHING)
    for rank in tl.static_range(COUNT):
        largest = tl.max(keys, 0)
        keys = tl.where(keys == largest, NOTHING, keys)
        order = (largest >> 32).to(tl.int32)
        x = (order ^ ((order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        index = NUM_IDS - (largest & 0xFFFFFFFF)
        is_there = largest != NOTHING
        found, index = tl.where(is_there, x - whole, -float("inf")), tl.where(is_there, index, 0)
        if SHORT and rank == 0:  # nothing else is left to write: rather short than never
            is_stuck = (tl.load(short + row) != 0) & (found == -float("inf"))
            found = tl.where(is_stuck, tl.load(logits + row * STRIDE + END).to(tl.float32) - whole, found)
            index = tl.where(is_stuck, END, index)
        tl.store(log_p + row * COUNT + rank, found)
        tl.store(token + row * COUNT + rank, index)
