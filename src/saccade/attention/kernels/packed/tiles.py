# mypy: disable-error-code="no-untyped-def"
"""What the kernels of packed attention share: which tile is a program's, and how tiles are read, written and masked.

Sentences of up to 32 steps, the usual ones, and longer ones are two launches of a kernel, side by side. For the short a
program has a sentence. The long are found without a list: the row is cut into windows of half a tile, and a program has
the sentence in which its window ends; L steps, more than such a window, hold the ends of L // window at least, enough
for all their tiles. What lies behind the last sentence is one more sentence, whose tiles are zeros.
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
    """How the work is cut: steps in a tile, warps of a program, registers a thread may take."""

    steps: int
    warps: int
    registers: int | None = None

    def options(self) -> dict[str, int | None]:
        """What a launch is told of it. Most sentences are one tile, so there is nothing to load ahead."""
        return {"BLOCK": self.steps, "num_warps": self.warps, "num_stages": 1, "maxnreg": self.registers}


class PackedTensor(NamedTuple):
    """A tensor [H, T, K] as a kernel reads it, the numbers of one step side by side."""

    data: Tensor
    head: int
    step: tl.constexpr
    width: tl.constexpr
    padded: tl.constexpr  # to a power of two; a product wants 16 at least

    @staticmethod
    def of(tensor: Tensor) -> PackedTensor:
        """Copied only where a step's numbers lie apart."""
        tensor = rows(tensor)
        sizes = (tensor.stride(1), tensor.shape[2], padded(tensor.shape[2]))
        return PackedTensor(tensor, tensor.stride(0), *(tl.constexpr(n) for n in sizes))


class Sentences(NamedTuple):
    """Where the sentences of the queries' row and of the keys' row begin."""

    query_start: Tensor
    key_start: Tensor | None  # None: queries and keys are one row
    num_sentences: int
    num_queries: int
    num_keys: int


class Dropping(NamedTuple):
    """Which weights are dropped, and by how much the others grow."""

    seed: Tensor | None
    threshold: int
    factor: float

    @staticmethod
    def of(share: float, seed: Tensor | None) -> Dropping:
        """A share of the weights, as the seed says."""
        return Dropping(seed, round(share * THRESHOLDS), 1 / (1 - share))


class Band(NamedTuple):
    """Which keys a query may see: low <= s - t <= high, where there are such bounds."""

    low: int
    high: int
    has_low: tl.constexpr
    has_high: tl.constexpr


class Launch(NamedTuple):
    """Some slots, of which each head wants a program, and what these are told."""

    first: int
    slots: int
    options: dict[str, Any]

    @property
    def end(self) -> int:
        """The slot that follows."""
        return self.first + self.slots


def options_of(given: PackedInputs) -> dict[str, object]:
    """Return what both kernels are told of a call beside its tensors."""
    bounds = (given.low is not None, given.high is not None)
    return {
        "band": Band(given.low or 0, given.high or 0, *(tl.constexpr(has) for has in bounds)),
        "dropping": Dropping.of(given.dropout, given.seed),
        "scale": given.scale * TO_BITS,
        "DROPS": given.dropout > 0,
    }


def sentences_of(given: PackedInputs) -> Sentences:
    """Return where the sentences of a call begin."""
    sizes = (given.query_start.shape[0] - 1, given.query_HTK.shape[1], given.key_GSK.shape[1])
    return Sentences(given.query_start, given.key_start, *sizes)


def launches(cuts: tuple[PackedBlocks, PackedBlocks], sentences: Sentences, longest: int) -> list[Launch]:
    """For the long sentences if there may be any, with the padding, and for the short ones.

    The long begin first: what is left of them at the end would take longest.
    """
    short, long = cuts
    told = {"sentences": sentences, "HALVINGS": sentences.num_sentences.bit_length()}
    for_short = {**told, **short.options(), "SKIP": 0}
    if longest <= short.steps:
        padding = max(sentences.num_queries, sentences.num_keys) // short.steps + 1
        return [Launch(0, sentences.num_sentences + padding, for_short)]
    num_steps = sentences.num_queries + (0 if sentences.key_start is None else sentences.num_keys)
    windows = triton.cdiv(num_steps, long.steps // 2)
    for_long = {**told, **long.options(), "SKIP": short.steps}
    return [Launch(0, windows, for_long), Launch(windows, sentences.num_sentences, for_short)]


def run(parts: list[Launch], device: torch.device, start: Callable[[Launch], object]) -> None:
    """Start the last, and the one before it, if there is one, beside it."""
    *others, last = parts
    with fork_stream(device) if others else nullcontext(nullcontext()) as aside:
        for part in others:
            with aside:
                start(part)
        start(last)


def padded(width: int) -> int:
    """The power of two that holds a width; a product wants 16 at least."""
    return max(16, triton.next_power_of_2(width))


def widths(key: Tensor, value: Tensor) -> dict[str, int]:
    """The widths of keys and values, and the powers of two that hold them."""
    width, value_width = key.shape[-1], value.shape[-1]
    return {
        "WIDTH": width,
        "PADDED": padded(width),
        "VALUE_WIDTH": value_width,
        "VALUE_PADDED": padded(value_width),
    }


def rows(tensor: Tensor) -> Tensor:
    """The tensor, its numbers of one step side by side."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def short_steps(longest: int) -> int:
    """Tiles that hold the usual sentence whole, and waste little on a shorter one."""
    return 16 if longest <= 16 else 32


@triton.jit
def mixed(x):
    """32 bits, well stirred (Wellons 2018, lowbias32): a dozen instructions where Philox takes a hundred."""
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def is_kept(seed, row, column, threshold):
    """Which weights stay: a function of the seed, the row (head and query) and the key's place in the sentence.

    Rows and columns are stirred well, before they meet; a pair then takes two multiplications, of which the high bits
    are compared.
    """
    rows = mixed(mixed(row.to(tl.uint32) ^ seed.to(tl.uint32)) ^ (seed >> 32).to(tl.uint32))
    word = (rows + mixed(column.to(tl.uint32))) * 0x7FEB352D
    word = (word ^ (word >> 15)) * 0x846CA68B
    return (word >> 1).to(tl.int32) >= threshold


@triton.jit
def begins(sentences, sentence):
    """The first query and the first key of a sentence."""
    query = tl.load(sentences.query_start + sentence).to(tl.int32)
    key = query
    if sentences.key_start is not None:
        key = tl.load(sentences.key_start + sentence).to(tl.int32)
    return query, key


@triton.jit
def along(sentences, query, key):
    """Where a query and a key are in the two rows, counted together."""
    return query if sentences.key_start is None else query + key


@triton.jit
def find_tile(slot, sentences, HALVINGS: tl.constexpr, BLOCK: tl.constexpr, SKIP: tl.constexpr):
    """The sentence of a program (the last: the padding), and which of its tiles; `SKIP`: shorter ones are left out."""
    if SKIP == 0:
        low = tl.minimum(slot, sentences.num_sentences)
        index = slot - low
    else:
        last = along(sentences, sentences.num_queries, sentences.num_keys) - 1
        window_end = tl.minimum((slot + 1) * (BLOCK // 2) - 1, last)
        low, high = 0, sentences.num_sentences + 1
        for _ in tl.static_range(HALVINGS):
            middle = (low + high) // 2
            query, key = begins(sentences, middle)
            is_before = along(sentences, query, key) <= window_end
            low, high = tl.where(is_before, middle, low), tl.where(is_before, high, middle)
        query, key = begins(sentences, low)
        index = slot - along(sentences, query, key) // (BLOCK // 2)
    return low, index


@triton.jit
def find_work(slot, sentences, HALVINGS: tl.constexpr, BLOCK: tl.constexpr, SKIP: tl.constexpr):
    """First and end of a program's queries and keys, its first step of both, whether it is padding, and has work."""
    sentence, index = find_tile(slot, sentences, HALVINGS, BLOCK, SKIP)
    is_padding = sentence == sentences.num_sentences
    query_first, key_first = begins(sentences, sentence)
    query_end, key_end = begins(sentences, tl.minimum(sentence + 1, sentences.num_sentences))
    query_end = tl.where(is_padding, sentences.num_queries, query_end)
    key_end = tl.where(is_padding, sentences.num_keys, key_end)
    longest = tl.maximum(query_end - query_first, key_end - key_first)
    is_mine = (longest <= BLOCK) if SKIP == 0 else (longest > SKIP)
    has_work = (is_mine | is_padding) & (index * BLOCK < longest)
    return query_first, query_end, key_first, key_end, index * BLOCK, is_padding, has_work


@triton.jit
def read(x, head, first, end, BLOCK: tl.constexpr):
    """Steps first.. of one head, zeros from `end` on."""
    return fetch(x.data + tl.cast(head, tl.int64) * x.head, first, end, x.step, x.width, x.padded, BLOCK)


@triton.jit
def turned(x, block, head, first, end, BLOCK: tl.constexpr):
    """What `read` read, [K, T]. A small tile is loaded so: to turn it, Triton would wait for it before other loads."""
    if BLOCK < 64:
        at, inside = tile(x.data + tl.cast(head, tl.int64) * x.head, first, end, x.step, x.width, x.padded, BLOCK)
        block_KT = tl.load(tl.trans(at), tl.trans(tl.broadcast_to(inside, (BLOCK, x.padded))), 0.0)
    else:
        block_KT = tl.trans(block)
    return block_KT


@triton.jit
def write(x, head, first, end, block, BLOCK: tl.constexpr):
    """Steps first.. of one head, up to `end`."""
    put(x.data + tl.cast(head, tl.int64) * x.head, first, end, x.step, block, x.width, x.padded, BLOCK)


@triton.jit
def tile(base, first, end, stride, WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """Pointers and mask of steps first.. (before end), [BLOCK, PADDED]."""
    row, column = tl.arange(0, BLOCK), tl.arange(0, PADDED)
    inside = (first + row < end)[:, None]
    if WIDTH < PADDED:
        inside = inside & (column < WIDTH)[None, :]
    return base + tl.cast(first, tl.int64) * stride + row[:, None] * stride + column[None, :], inside


@triton.jit
def fetch(base, first, end, stride, WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """Steps first.. of one head, zeros from `end` on."""
    at, inside = tile(base, first, end, stride, WIDTH, PADDED, BLOCK)
    return tl.load(at, inside, 0.0)


@triton.jit
def put(base, first, end, stride, x, WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """Steps first.. of one head, up to `end`."""
    at, inside = tile(base, first, end, stride, WIDTH, PADDED, BLOCK)
    tl.store(at, x.to(base.dtype.element_ty), inside)


@triton.jit
def product(a, b):
    """a @ b in float32; float32 itself is multiplied exactly, not rounded to tf32."""
    return tl.dot(a, b, input_precision="ieee" if a.dtype == tl.float32 else "tf32")


@triton.jit
def in_band(t, s, key_end, low, high, HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr):
    """Key s is in the sentence, and low <= s - t <= high. (Queries behind the sentence are never stored.)"""
    inside = s < key_end
    if HAS_LOW:
        inside = inside & (s - t >= low)
    if HAS_HIGH:
        inside = inside & (s - t <= high)
    return inside


@triton.jit
def in_reach(
    first, end, other_first, other_end, low, high, BLOCK: tl.constexpr, HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr
):
    """The steps that any of first..end - 1 may meet, low <= other - own <= high, whole blocks from other_first on."""
    start, stop = other_first, other_end
    if HAS_LOW:
        start = tl.maximum(start, other_first + (first + low - other_first) // BLOCK * BLOCK)
    if HAS_HIGH:
        stop = tl.minimum(stop, end + high)
    return start, stop


@triton.jit
def keys_in_reach(first, key_first, key_end, band, BLOCK: tl.constexpr):
    """The keys that a tile of queries may meet."""
    end = first + BLOCK
    return in_reach(first, end, key_first, key_end, band.low, band.high, BLOCK, band.has_low, band.has_high)


@triton.jit
def queries_in_reach(first, query_first, query_end, band, BLOCK: tl.constexpr):
    """The queries that a tile of keys may meet."""
    end = first + BLOCK
    return in_reach(first, end, query_first, query_end, -band.high, -band.low, BLOCK, band.has_high, band.has_low)
