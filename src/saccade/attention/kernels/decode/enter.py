# mypy: disable-error-code="no-untyped-def"
"""Copies keys and values of sources into slots, from wherever a projection left them.

E: sentences that enter. G: key/value heads.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

ROWS = 64  # a head's at a step, of keys and of values, that a program copies


def enter(kept: tuple[Tensor, Tensor], index_E: Tensor, entering: tuple[Tensor, Tensor]) -> None:
    """Copy what enters, [E, S, G, K], over the first steps of some sentences of `kept`, [B, S, G, K]."""
    new_key, new_value = (tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in entering)
    (count, num_steps, heads, width), tensors = new_key.shape, (*kept, new_key, new_value)
    assert kept[0].shape == kept[1].shape
    assert new_key.shape == new_value.shape
    assert kept[0].stride(-1) == kept[1].stride(-1) == 1
    enter_kernel[(count, triton.cdiv(num_steps * heads, ROWS))](
        *tensors,
        index_E,
        index_E.stride(0),
        *(stride for tensor in tensors for stride in tensor.stride()[:3]),
        num_steps,
        HEADS=heads,
        WIDTH=width,
        PADDED=triton.next_power_of_2(width),
        ROWS=ROWS,
    )


@triton.jit
def enter_kernel(
    key,
    value,
    new_key,
    new_value,
    index,
    index_step,
    key_sentence,
    key_step,
    key_head,
    value_sentence,
    value_step,
    value_head,
    new_key_sentence,
    new_key_step,
    new_key_head,
    new_value_sentence,
    new_value_step,
    new_value_head,
    num_steps,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Copy some steps of one sentence; a slot that is named twice gets the same twice."""
    new = tl.program_id(0).to(tl.int64)
    slot = tl.load(index + new * index_step)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    step, head, column = row // HEADS, row % HEADS, tl.arange(0, PADDED)[None, :]
    inside = (step < num_steps) & (column < WIDTH)
    k = tl.load(new_key + new * new_key_sentence + step * new_key_step + head * new_key_head + column, inside)
    v = tl.load(new_value + new * new_value_sentence + step * new_value_step + head * new_value_head + column, inside)
    tl.store(key + slot * key_sentence + step * key_step + head * key_head + column, k, inside)
    tl.store(value + slot * value_sentence + step * value_step + head * value_head + column, v, inside)
