# mypy: disable-error-code="no-untyped-def"
"""What the kernels of packed attention share: which tile is a program's, and how tiles are read, written and masked.

Tiles are handed out without a list: sentence i's first slot is start_i // BLOCK + i, which leaves room for all its
tiles (L tokens have at most (start_i + L) // BLOCK - start_i // BLOCK + 1), so a program finds its sentence by halving
the starts. What lies behind the last sentence is one more sentence, whose tiles are zeros.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

TO_BITS = 1 / math.log(2)  # exponentials are powers of two: exp(x) = 2 ** (x TO_BITS)
THRESHOLDS = 1 << 31


class Blocks(NamedTuple):
    """How the work is cut: steps in a tile, warps of a program, registers a thread may take."""

    steps: int
    warps: int
    registers: int | None = None

    def options(self) -> dict[str, int | None]:
        """What a launch is told of it. Most sentences are one tile, so there is nothing to load ahead."""
        return {"BLOCK": self.steps, "num_warps": self.warps, "num_stages": 1, "maxnreg": self.registers}


class Rules(NamedTuple):
    """What a call asks beside its tensors."""

    scale: float
    low: int | None  # low <= s - t <= high
    high: int | None
    dropout: float
    longest: int  # no sentence has more queries or keys

    def arguments(self) -> dict[str, object]:
        """What both kernels are told of it."""
        return {
            "scale": self.scale * TO_BITS,
            "low": self.low or 0,
            "high": self.high or 0,
            "threshold": round(self.dropout * THRESHOLDS),
            "factor": 1 / (1 - self.dropout),
            "HAS_LOW": self.low is not None,
            "HAS_HIGH": self.high is not None,
            "DROPS": self.dropout > 0,
        }


def widths(key: Tensor, value: Tensor) -> dict[str, int]:
    """The widths of keys and values, and the powers of two that hold them; a product wants 16 at least."""
    width, value_width = key.shape[-1], value.shape[-1]
    return {
        "WIDTH": width,
        "PADDED": max(16, triton.next_power_of_2(width)),
        "VALUE_WIDTH": value_width,
        "VALUE_PADDED": max(16, triton.next_power_of_2(value_width)),
    }


def rows(tensor: Tensor) -> Tensor:
    """The tensor, its numbers of one step side by side."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def halvings(start: Tensor) -> int:
    """How often the sentences (and the padding behind them) must be halved to find one."""
    return (start.shape[0] - 1).bit_length()


def block_steps(longest: int) -> int:
    """Tiles that hold the usual sentence whole: a longer one is several tiles, a shorter one wastes little."""
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
def find_tile(
    slot, query_start, key_start, num_sentences, HALVINGS: tl.constexpr, BLOCK: tl.constexpr, BOTH: tl.constexpr
):
    """The sentence of a slot (num_sentences: the padding behind all) and which of its tiles this is.

    With BOTH there are tiles enough for the longer of the sentence's queries and keys, else for its queries.
    """
    low, high = 0, num_sentences + 1
    for _ in tl.static_range(HALVINGS):
        middle = (low + high) // 2
        first = first_slot(middle, query_start, key_start, BLOCK, BOTH)
        low = tl.where(first <= slot, middle, low)
        high = tl.where(first <= slot, high, middle)
    return low, slot - first_slot(low, query_start, key_start, BLOCK, BOTH)


@triton.jit
def first_slot(sentence, query_start, key_start, BLOCK: tl.constexpr, BOTH: tl.constexpr):
    """Where a sentence's tiles begin."""
    slot = sentence + tl.load(query_start + sentence).to(tl.int32) // BLOCK
    if BOTH:
        slot += tl.load(key_start + sentence).to(tl.int32) // BLOCK
    return slot


@triton.jit
def span(start, sentence, num_sentences, num_steps):
    """The first step of a sentence, and one past its last."""
    first = tl.load(start + sentence).to(tl.int32)
    end = tl.load(start + tl.minimum(sentence + 1, num_sentences)).to(tl.int32)
    return first, tl.where(sentence == num_sentences, num_steps, end)


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
