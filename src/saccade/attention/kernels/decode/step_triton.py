# mypy: disable-error-code="no-untyped-def"
"""The step of a decoder in Triton: a program has one row and one head, and goes through its steps in blocks.

The new key and value come first, from where the projection left them, so that nothing written here is read here. The
steps before them are on their way while the projection is made, where programs are few and so registers many.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.decode.step import StepInputs
from saccade.attention.kernels.packed.launches import TO_BITS, rows
from saccade.ops.kernels.follow import follow
from saccade.ops.kernels.launch import launch_options

FEW_PROGRAMS = 1024
WARPS = 1  # more would only wait for each other


def block_steps(capacity: int, is_ahead: bool) -> int:
    """Choose how many steps a program takes at once: few where many programs share the registers."""
    return max(16, min(32, triton.next_power_of_2(capacity))) if is_ahead else 16


def step(given: StepInputs) -> Tensor:
    """Compute the output [R, H, K], and write a new step into the cache."""
    query_RHK, key_RCGK, value_RCGK, length_R, ancestor, new_key, new_value, scale = given
    query = rows(query_RHK)
    (num_rows, num_heads, width), (_, capacity, groups, _) = query.shape, key_RCGK.shape
    assert key_RCGK.stride(-1) == value_RCGK.stride(-1) == 1
    new_key, new_value = (query if new is None else rows(new) for new in (new_key, new_value))
    output = query.new_empty(query.shape)
    is_ahead = num_rows * num_heads <= FEW_PROGRAMS
    step_kernel[(num_rows * num_heads,)](
        query,
        key_RCGK,
        value_RCGK,
        length_R,
        length_R if ancestor is None else ancestor,
        new_key,
        new_value,
        output,
        *query.stride()[:2],
        *key_RCGK.stride()[:3],
        *value_RCGK.stride()[:3],
        *new_key.stride()[:2],
        *new_value.stride()[:2],
        0 if ancestor is None else ancestor.stride(0),
        num_heads,
        capacity,
        scale * TO_BITS,
        ANCESTORS=0 if ancestor is None else ancestor.dim(),
        NEW=given.new_key_RGK is not None,
        REPEATS=num_heads // groups,
        WIDTH=width,
        PADDED=triton.next_power_of_2(width),
        BLOCK=block_steps(capacity, is_ahead),
        AHEAD=is_ahead,
        num_warps=WARPS,
        **launch_options(query.device),
    )
    return output


@triton.jit
def step_kernel(
    query,
    key,
    value,
    length,
    ancestor,
    new_key,
    new_value,
    output,
    query_row,
    query_head,
    key_row,
    key_step,
    key_head,
    value_row,
    value_step,
    value_head,
    new_key_row,
    new_key_head,
    new_value_row,
    new_value_head,
    ancestor_row,
    num_heads,
    capacity,
    scale,
    ANCESTORS: tl.constexpr,
    NEW: tl.constexpr,
    REPEATS: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute softmax(scale q·k) v over the first `length` steps of a row, wherever they are kept, and the new one."""
    head, row = tl.program_id(0) % num_heads, (tl.program_id(0) // num_heads).to(tl.int64)
    group = head // REPEATS
    column = tl.arange(0, PADDED)
    inside = column < WIDTH
    num_steps = tl.load(length + row).to(tl.int32)
    key += group * key_head
    value += group * value_head
    only_holder = row
    if ANCESTORS == 1:
        only_holder = tl.load(ancestor + row * ancestor_row).to(tl.int64)
    ancestor += row * ancestor_row
    rows = (key_row, key_step, value_row, value_step)
    if AHEAD:
        k, v = _steps(key, value, ancestor, only_holder, 0, num_steps, rows, column, inside, ANCESTORS == 2, BLOCK)
    follow(EARLY)
    q = tl.load(query + row * query_row + head * query_head + column, inside, 0.0).to(tl.float32) * scale
    if NEW:
        k_new = tl.load(new_key + row * new_key_row + group * new_key_head + column, inside, 0.0)
        v_new = tl.load(new_value + row * new_value_row + group * new_value_head + column, inside, 0.0)
        writes = inside & (num_steps < capacity) & (head % REPEATS == 0)
        tl.store(key + row * key_row + num_steps * key_step + column, k_new, writes)
        tl.store(value + row * value_row + num_steps * value_step + column, v_new, writes)
        top = tl.sum(q * k_new.to(tl.float32), 0)
        total, summed = 1.0, v_new.to(tl.float32)
    else:
        top = -float("inf")
        total, summed = 0.0, tl.zeros((PADDED,), tl.float32)
    if AHEAD:
        top, total, summed = _attend_to(q, k, v, tl.arange(0, BLOCK) < num_steps, top, total, summed)
    for first in range(BLOCK if AHEAD else 0, num_steps, BLOCK):
        k, v = _steps(key, value, ancestor, only_holder, first, num_steps, rows, column, inside, ANCESTORS == 2, BLOCK)
        top, total, summed = _attend_to(q, k, v, first + tl.arange(0, BLOCK) < num_steps, top, total, summed)
    summed = summed / tl.where(total == 0, 1.0, total)  # zeros where nothing was seen; NaN stays NaN
    tl.store(output + tl.program_id(0).to(tl.int64) * WIDTH + column, summed, inside)  # [R, H, K] in one piece


@triton.jit
def _steps(
    key, value, ancestor, holder, first, num_steps, rows, column, inside, EACH: tl.constexpr, BLOCK: tl.constexpr
):
    """Read some keys and values, of one holder or each of its own; behind the last step nothing is read."""
    key_row, key_step, value_row, value_step = rows
    s = first + tl.arange(0, BLOCK)
    is_step = s < num_steps
    if EACH:
        holder = tl.load(ancestor + s, is_step, 0).to(tl.int64)
    here = is_step[:, None] & inside[None, :]
    key_at, value_at = holder * key_row + s * key_step, holder * value_row + s * value_step
    k = tl.load(key + key_at[:, None] + column[None, :], here, 0.0)
    return k, tl.load(value + value_at[:, None] + column[None, :], here, 0.0)


@triton.jit
def _attend_to(q, k, v, is_step, top, total, summed):
    """Return the largest score, the sum of weights and that of weighted values, after these steps too."""
    score = tl.where(is_step, tl.sum(k.to(tl.float32) * q[None, :], 1), -float("inf"))
    higher = tl.maximum(top, tl.max(score, 0))
    origin = tl.where(higher == -float("inf"), 0.0, higher)  # nothing was seen yet
    fade, weight = tl.exp2(top - origin), tl.exp2(score - origin)
    total = total * fade + tl.sum(weight, 0)
    return higher, total, summed * fade + tl.sum(weight[:, None] * v.to(tl.float32), 0)
