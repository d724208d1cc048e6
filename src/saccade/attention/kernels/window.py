"""Restricted attention in O(r n d): blocks of queries against the overlapping slices of keys they may see.

The slices are views, not copies, and all blocks run as one batched call of the score's kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.scores import Score

REASON = "the mask keeps every key near its query, so only that band is computed"
SMALLEST_BLOCK, LARGEST_BLOCK = 32, 256

Attend = Callable[[Call], Attended]


def refuses(call: Call) -> str | None:
    """Return why the kernel can't run this call, or None."""
    if call.bias is not None:
        return "a bias was given"
    if None in call.mask.band:
        return "the mask has no band: some allowed keys may be any distance away"
    if call.wants_weights or call.wants_log_probability:
        return "the weights were asked for"
    if call.mask.factor is not None:
        return "the mask weighs its keys (local_p)"
    if not isinstance(call.score, Score) or call.score.reads_position:
        return "the score may read the key's position"
    return None


def pays(call: Call) -> bool:
    """Return True if the band is narrow enough to be quicker than all pairs."""
    low, high = _band(call)
    return 2 * (_block_size(call) + high - low) <= call.num_keys


def run(call: Call, attend: Attend) -> Attended:
    """Attend in blocks where a block's keys all exist, and by plain slices at both ends."""
    low, high = _band(call)
    size = _block_size(call)
    first = -(-max(0, -low) // size)  # the first block whose keys don't begin before 0
    last = min(call.num_queries, call.num_keys - high) // size  # the first one whose keys end after S
    if last <= first:
        return Attended(_slice(call, 0, call.num_queries, attend))
    parts = [
        _slice(call, 0, first * size, attend),
        _blocks(call, first * size, last - first, attend),
        _slice(call, last * size, call.num_queries, attend),
    ]
    return Attended(torch.cat([part for part in parts if part.shape[-2]], -2))


def _blocks(call: Call, start: int, num_blocks: int, attend: Attend) -> Tensor:
    low, high = _band(call)
    size = _block_size(call)
    first_key, num_keys = start + low, size + high - low
    keys, values = (
        tensor.expand(*call.leading, *tensor.shape[-2:])[..., first_key:, :]
        .unfold(-2, num_keys, size)[..., :num_blocks, :, :]
        .movedim(-3, 0)
        .mT
        for tensor in (call.memory, call.value)
    )
    query = call.query.expand(*call.leading, *call.query.shape[-2:])[..., start : start + num_blocks * size, :]
    blocks = replace(
        call,
        query=query.unflatten(-2, (num_blocks, size)).movedim(-3, 0),
        memory=keys,
        value=values,
        mask=call.mask.shift(start, first_key).split_blocks(num_blocks, size),
    )
    return attend(blocks).output.movedim(0, -3).flatten(-3, -2)


def _slice(call: Call, start: int, stop: int, attend: Attend) -> Tensor:
    """Attend with queries start..stop to the keys that any of them may see."""
    low, high = _band(call)
    first_key, end_key = max(0, start + low), min(call.num_keys, stop + high)
    query = call.query[..., start:stop, :]
    if stop <= start:
        return call.value.new_empty(*call.leading, 0, call.value.shape[-1])
    if end_key <= first_key:
        first_key, end_key = 0, 1  # no query here sees any key; the mask forbids this one too, and zeros come out
    memory, value = call.memory[..., first_key:end_key, :], call.value[..., first_key:end_key, :]
    mask = call.mask.shift(start, first_key)
    return attend(replace(call, query=query, memory=memory, value=value, mask=mask)).output


def _band(call: Call) -> tuple[int, int]:
    low, high = call.mask.band
    assert low is not None
    assert high is not None
    return low, max(low, high)


def _block_size(call: Call) -> int:
    low, high = _band(call)
    return min(max((high - low) // 2, SMALLEST_BLOCK), LARGEST_BLOCK)
