"""Launches of the kernels of packed attention: their arguments, the block sizes, the tiles of a launch.

Sentences of up to 32 steps, the usual ones, and longer ones are two launches of a kernel, side by side (`tiles.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from saccade.attention.kernels.packed.op import PackedInputs
from saccade.ops.kernels.launch import fork_stream

TO_BITS = 1 / math.log(2)  # exponentials are powers of two: exp(x) = 2 ** (x TO_BITS)
THRESHOLDS = 1 << 31


class PackedBlocks(NamedTuple):
    """Tuning of a launch: steps in a tile, warps of a program, registers a thread may take."""

    steps: int
    warps: int
    registers: int | None = None

    def options(self) -> dict[str, int | None]:
        """Return the options of a launch. Most sentences are one tile, so there is nothing to load ahead."""
        return {"num_warps": self.warps, "num_stages": 1, "maxnreg": self.registers}


class PackedTile(NamedTuple):
    """Compile-time constants of a kernel."""

    block: int  # steps in a tile
    skip: int  # no sentence up to this length has work here; 0: none that is longer than a tile has
    halvings: int  # that find a sentence
    repeats: int  # query heads of a key/value head
    drops: bool


class PackedTensor(NamedTuple):
    """A tensor [H, T, K] as a kernel reads it, the numbers of one step side by side."""

    data: Tensor
    head: int
    step: tl.constexpr
    width: tl.constexpr
    padded: tl.constexpr  # to a power of two; a product wants 16 at least

    @staticmethod
    def of(tensor: Tensor) -> PackedTensor:
        """Describe a tensor; it is copied only where the numbers of a step lie apart."""
        tensor = rows(tensor)
        sizes = (tensor.stride(1), tensor.shape[2], padded_width(tensor.shape[2]))
        return PackedTensor(tensor, tensor.stride(0), *(tl.constexpr(n) for n in sizes))


class Sentences(NamedTuple):
    """Starts of the sentences in the queries' row and in the keys' row."""

    query_start: Tensor
    key_start: Tensor | None  # None: queries and keys are one row
    num_sentences: int
    num_queries: int
    num_keys: int


class DropRule(NamedTuple):
    """Dropout of weights: its seed, its threshold, and the factor by which the kept ones grow."""

    seed: Tensor | None
    threshold: int
    factor: float

    @staticmethod
    def of(share: float, seed: Tensor | None) -> DropRule:
        """Drop a share of the weights, as the seed says."""
        return DropRule(seed, round(share * THRESHOLDS), 1 / (1 - share))


class Band(NamedTuple):
    """The keys that a query may see: low <= s - t <= high, where there are such bounds."""

    low: int
    high: int
    has_low: tl.constexpr
    has_high: tl.constexpr


class Launch(NamedTuple):
    """Some slots, of which each head wants a program, and the arguments of these."""

    first: int
    slots: int
    options: dict[str, Any]

    @property
    def end(self) -> int:
        return self.first + self.slots


def sentences_of(given: PackedInputs) -> Sentences:
    """Return where the sentences of a call begin."""
    sizes = (given.query_start.shape[0] - 1, given.query_HTK.shape[1], given.key_GSK.shape[1])
    return Sentences(given.query_start, given.key_start, *sizes)


def launches(cuts: tuple[PackedBlocks, PackedBlocks], given: PackedInputs) -> list[Launch]:
    """Return a launch for the long sentences, if there may be any, with the padding, and one for the short sentences.

    The long begin first: what is left of them at the end would take longest.
    """
    (short, long), sentences = cuts, sentences_of(given)
    sizes = (sentences.num_sentences.bit_length(), len(given.query_HTK) // len(given.key_GSK), given.dropout > 0)
    bounds = (given.low is not None, given.high is not None)
    arguments = {
        "sentences": sentences,
        "band": Band(given.low or 0, given.high or 0, *(tl.constexpr(has) for has in bounds)),
        "dropping": DropRule.of(given.dropout, given.seed),
        "scale": given.scale * TO_BITS,
    }
    for_short = {**arguments, **short.options(), "TILE": PackedTile(short.steps, 0, *sizes)}
    if given.longest <= short.steps:
        padding = max(sentences.num_queries, sentences.num_keys) // short.steps + 1
        return [Launch(0, sentences.num_sentences + padding, for_short)]
    num_steps = sentences.num_queries + (0 if sentences.key_start is None else sentences.num_keys)
    windows = triton.cdiv(num_steps, long.steps // 2)
    for_long = {**arguments, **long.options(), "TILE": PackedTile(long.steps, short.steps, *sizes)}
    return [Launch(0, windows, for_long), Launch(windows, sentences.num_sentences, for_short)]


def run(parts: list[Launch], device: torch.device, start: Callable[[Launch], object]) -> None:
    """Start the last launch, and the one before it, if there is one, beside it."""
    *others, last = parts
    with fork_stream(device) if others else nullcontext(nullcontext()) as aside:
        for part in others:
            with aside:
                start(part)
        start(last)


def padded_width(width: int) -> int:
    """Return the power of two that holds a width; a product wants 16 at least."""
    return max(16, triton.next_power_of_2(width))


def rows(tensor: Tensor) -> Tensor:
    """Return the tensor with the numbers of a step side by side."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def short_steps(longest: int) -> int:
    """Return the steps of tiles that hold the usual sentence whole, and waste little on a shorter one."""
    return 16 if longest <= 16 else 32
