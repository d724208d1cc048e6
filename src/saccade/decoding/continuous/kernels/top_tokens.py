# mypy: disable-error-code="no-untyped-def"
"""The largest logits of each row and its log-sum-exp, in one pass over the logits.

A program reads a part of a row and writes the largest of each piece of it; a second kernel then reads only
the pieces that hold the largest of the row, where they still are in the cache. Of equal ones the lowest id is first.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.packed.launches import TO_BITS as BITS
from saccade.ops.kernels.follow import follow
from saccade.ops.kernels.launch import launch_options

PART = 2048  # logits of a program, which is one warp: nobody waits for another
MOST_PARTS = 256  # larger vocabularies have larger parts
PIECES = 8  # of a part
TO_BITS = tl.constexpr(BITS)
NOTHING = tl.constexpr(-(1 << 31))  # below every logit's number
EVERYTHING = tl.constexpr((1 << 31) - 1)  # above


def best(logits_RV: Tensor, count: int, forbidden: int, end: int, place_R: Tensor, shortest: int) -> tuple[Tensor, ...]:
    """Return the largest `count` allowed logits of each row less its log-sum-exp, their ids, and the log-sum-exp [R].

    `forbidden` is a set of ids below 31, as bits; rows that have written fewer than `shortest` may not write `end`,
    below 31, either, unless it is all that there is.
    """
    (num_rows, num_ids), device = logits_RV.shape, logits_RV.device
    assert logits_RV.stride(1) == 1
    padded = triton.next_power_of_2(num_ids)
    part = max(PIECES, min(max(PART, padded // MOST_PARTS), padded))
    num_parts = triton.cdiv(num_ids, part)
    top = torch.empty(num_rows, num_parts * PIECES, dtype=torch.float32, device=device)
    total = torch.empty(num_rows, num_parts, dtype=torch.float32, device=device)
    log_p = torch.empty(num_rows, count, dtype=torch.float32, device=device)
    token = torch.empty(num_rows, count, dtype=torch.int64, device=device)
    total_R = torch.empty(num_rows, dtype=torch.float32, device=device)
    allowed = {"FORBIDDEN": forbidden, "END": end, "SHORT": shortest > 0}
    shape = {"STRIDE": logits_RV.stride(0), "NUM_IDS": num_ids, "PIECES": PIECES, "PIECE": part // PIECES}
    read = (logits_RV, place_R, shortest)
    how: dict[str, int] = {**allowed, **shape, "num_warps": 1, **launch_options(device)}
    part_kernel[(num_parts, num_rows)](*read, top, total, num_parts, **how)
    padded_parts = triton.next_power_of_2(num_parts)
    join_kernel[(num_rows,)](
        *read, top, total, log_p, token, total_R, num_parts, COUNT=count, PARTS=padded_parts, **how
    )
    return log_p, token, total_R


@triton.jit
def part_kernel(
    logits,
    place,
    shortest,
    top,
    total,
    num_parts,
    FORBIDDEN: tl.constexpr,
    END: tl.constexpr,
    SHORT: tl.constexpr,
    STRIDE: tl.constexpr,  # as constants, these show the compiler what is aligned
    NUM_IDS: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Find the largest allowed logit of each piece of a part of a row, and the part's log-sum-exp."""
    follow(EARLY)
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    piece = tl.arange(0, PIECES)
    at = part * (PIECES * PIECE) + piece[:, None] * PIECE + tl.arange(0, PIECE)[None, :]
    x = tl.load(logits + row * STRIDE + at, at < NUM_IDS, -float("inf")).to(tl.float32)
    tops = tl.max(x, 1)
    largest = tl.max(tops, 0)
    largest = tl.where(largest == -float("inf"), 0.0, largest)
    summed = tl.sum(tl.sum(tl.exp2(x * TO_BITS - largest * TO_BITS), 0), 0)
    log_sum = tl.where(summed > 0, largest + tl.log(tl.maximum(summed, 1e-30)), -float("inf"))
    tl.store(total + row * num_parts + part, log_sum)
    if part * (PIECES * PIECE) < 31:  # ids that may be forbidden
        tops = tl.max(_forbid(x, at, place + row, shortest, FORBIDDEN, END, SHORT), 1)
    tl.store(top + (row * num_parts + part) * PIECES + piece, tops)


@triton.jit
def join_kernel(
    logits,
    place,
    shortest,
    top,
    total,
    log_p,
    token,
    total_R,
    num_parts,
    FORBIDDEN: tl.constexpr,
    END: tl.constexpr,
    SHORT: tl.constexpr,
    STRIDE: tl.constexpr,
    NUM_IDS: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    COUNT: tl.constexpr,
    PARTS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Find one after the other the piece whose largest is the largest that is left, and where in it that is.

    Numbers of 32 bits have a warp's largest in one instruction. What is not there has no probability.
    """
    follow(EARLY)
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    sums = tl.load(total + row * num_parts + part, part < num_parts, -float("inf"))
    largest = tl.max(sums, 0)
    largest = tl.where(largest == -float("inf"), 0.0, largest)
    whole = largest + tl.log(tl.sum(tl.exp(sums - largest), 0))
    tl.store(total_R + row, whole)
    piece, num_pieces = tl.arange(0, PARTS * PIECES), num_parts * PIECES
    tops = tl.load(top + row * num_pieces + piece, piece < num_pieces, 0.0)
    left = tl.where(piece < num_pieces, in_order(tops), NOTHING)  # the largest of each piece that was not found yet
    before, before_at = EVERYTHING, -1
    for rank in tl.static_range(COUNT):
        largest = tl.max(left, 0)
        where = tl.min(tl.where(left == largest, piece, PARTS * PIECES), 0)
        at = where * PIECE + tl.arange(0, PIECE)
        inside = (largest != NOTHING) & (at < NUM_IDS)
        x = tl.load(logits + row * STRIDE + at, inside, 0.0).to(tl.float32)
        order = tl.where(inside, in_order(_forbid(x, at, place + row, shortest, FORBIDDEN, END, SHORT)), NOTHING)
        after = tl.where(largest == before, before_at, -1)  # equal ones up to there were found
        index = tl.min(tl.where((order == largest) & (at > after), at, NUM_IDS), 0)
        if rank + 1 < COUNT:
            is_later = (order < largest) | ((order == largest) & (at > index))
            left = tl.where(piece == where, tl.max(tl.where(is_later, order, NOTHING), 0), left)
            before, before_at = largest, index
        is_there = (index < NUM_IDS) & (largest != NOTHING)
        found = tl.where(is_there, as_float(largest) - whole, -float("inf"))
        index = tl.where(is_there, index, 0).to(tl.int64)
        if SHORT and rank == 0:  # nothing else is left to write: rather short than never
            is_stuck = (tl.load(place + row) < shortest) & (found == -float("inf"))
            found = tl.where(is_stuck, tl.load(logits + row * STRIDE + END).to(tl.float32) - whole, found)
            index = tl.where(is_stuck, END, index)
        tl.store(log_p + row * COUNT + rank, found)
        tl.store(token + row * COUNT + rank, index)


@triton.jit
def _forbid(x, at, place, shortest, FORBIDDEN: tl.constexpr, END: tl.constexpr, SHORT: tl.constexpr):
    """Set logits of ids that may not be written to -inf."""
    is_forbidden = (at < 31) & (((FORBIDDEN >> tl.minimum(at, 30)) & 1) == 1)
    if SHORT:
        is_forbidden |= (at == END) & (tl.load(place) < shortest)
    return tl.where(is_forbidden, -float("inf"), x)


@triton.jit
def in_order(x):
    """Convert floats to whole numbers in the same order; there is one zero."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def as_float(order):
    """Convert numbers of `in_order` back to floats."""
    return (order ^ ((order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
