"""Sequences of bit vectors to write back: as texts, as tensors, and drawn at random while one trains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.errors import UserError

MOST_STEPS = 4096  # of a sequence, those that are written included
BATCHES = 500  # of an epoch; there is no end of sequences
TIMES = re.compile(r"x([1-9]\d{0,3})", re.ASCII)


class Size(NamedTuple):
    """The number of vectors in a sequence, and how often it is wanted back."""

    length: int
    repeats: int

    @property
    def num_steps(self) -> int:
        """The vectors to read, the sign that ends them, the vectors to write, and the sign that ends those."""
        return self.length + 1 + self.length * self.repeats + 1

    def __str__(self) -> str:
        return str(self.length) if self.repeats == 1 else f"{self.length} x{self.repeats}"


class BitSequence(NamedTuple):
    """Vectors of bits [S, W], and how often they are wanted back."""

    bit_SW: NDArray[np.uint8]
    repeats: int = 1

    @property
    def size(self) -> Size:
        return Size(len(self.bit_SW), self.repeats)

    @property
    def words(self) -> list[str]:
        return spell(self.bit_SW)


def spell(bit_SW: NDArray[np.uint8]) -> list[str]:
    """Write vectors as words, 01101010."""
    return ["".join(map(str, vector)) for vector in bit_SW.tolist()]


def count_steps(text: str) -> int:
    """Count the steps that a text asks for, right or wrong."""
    words = text.split()
    found = TIMES.fullmatch(words[-1]) if words else None
    return min(MOST_STEPS, len(words) * (1 + int(found[1]) if found else 2))


def parse_sequence(text: str, width: int) -> BitSequence:
    """Read `01101010 11110000 x3`: vectors of bits, and how often they are wanted back (once, if it doesn't say)."""
    words, repeats = text.split(), 1
    if words and (found := TIMES.fullmatch(words[-1])):
        repeats = int(found[1])
        words.pop()
    for word in words:
        if len(word) != width or set(word) - {"0", "1"}:
            example = ("01" * width)[:width]
            wanted = f"vectors of {width} bits ({example} ...), and at the end perhaps x3 to have them three times"
            raise UserError(f"a sequence: {word[:40]!r} given; allowed: {wanted}")
    bit_SW = np.array([[*map(int, word)] for word in words], dtype=np.uint8).reshape(-1, width)
    sequence = BitSequence(bit_SW, repeats)
    if sequence.size.num_steps > MOST_STEPS:
        raise UserError(f"a sequence: {sequence.size.num_steps:,} steps to read and write; at most {MOST_STEPS:,}")
    return sequence


class SequenceBatch(NamedTuple):
    """Inputs [B, T, W + 2] and what is to be written in the last steps, [B, T', W + 1].

    Behind the bits, an input has a sign for its end, which comes with how often it is wanted; an output has one, too.
    """

    input_BTC: Tensor
    output_BTC: Tensor

    def to(self, device: torch.device) -> SequenceBatch:
        return SequenceBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @property
    def num_items(self) -> int:
        return self.output_BTC.numel()


@final
@dataclass(frozen=True)
class Encoder:
    """Turns sequences of one size into a batch. `usual` are the fewest and the most repeats of the training."""

    width: int
    usual: tuple[int, int]

    @property
    def input_width(self) -> int:
        return self.width + 2

    @property
    def output_width(self) -> int:
        return self.width + 1

    def batch(self, sequences: Sequence[BitSequence]) -> SequenceBatch:
        bit_BSW = torch.from_numpy(np.stack([one.bit_SW for one in sequences])).float()
        (size,) = {one.size for one in sequences}
        input_BTC = torch.zeros(len(bit_BSW), size.num_steps, self.input_width)
        input_BTC[:, : size.length, : self.width] = bit_BSW
        input_BTC[:, size.length, self.width] = 1
        input_BTC[:, size.length, self.width + 1] = self.scale(size.repeats)
        output_BTC = torch.zeros(len(bit_BSW), size.length * size.repeats + 1, self.output_width)
        output_BTC[:, :-1, : self.width] = bit_BSW.repeat(1, size.repeats, 1)
        output_BTC[:, -1, self.width] = 1
        return SequenceBatch(input_BTC, output_BTC)

    def scale(self, repeats: int) -> float:
        """Scale a number of repeats to mean 0 and variance 1 in training (Graves 2014, section 4.2)."""
        fewest, most = self.usual
        variance = ((most - fewest + 1) ** 2 - 1) / 12
        return (repeats - (fewest + most) / 2) / max(variance, 1e-9) ** 0.5 if most > fewest else float(repeats - most)


def draw_sequences(size: Size, width: int, count: int, random: np.random.Generator) -> list[BitSequence]:
    """Draw sequences of random bits, all of one size."""
    bit_NSW = random.integers(0, 2, (count, size.length, width), dtype=np.uint8)
    return [BitSequence(bit_SW, size.repeats) for bit_SW in bit_NSW]


class SequenceDraw(NamedTuple):
    """Everything that makes a batch: its size, and a seed."""

    size: Size
    seed: tuple[int, ...]


class NumberRange(NamedTuple):
    """Numbers to draw from: all from the fewest to the most, or some of them, each further apart than the last."""

    number_N: NDArray[np.int64]

    @classmethod
    def of(cls, span: tuple[int, int], count: int | None = None) -> NumberRange:
        fewest, most = span
        if count is None or count > most - fewest:
            return cls(np.arange(fewest, most + 1))
        return cls(np.unique(np.rint(np.geomspace(fewest, most, count)).astype(np.int64)))

    def draw(self, share_B: NDArray[np.float64], grown_B: NDArray[np.float64] | float = 1.0) -> NDArray[np.int64]:
        """Turn shares from 0 to 1 into numbers below a limit, which has `grown` from the fewest (0) to the most (1)."""
        limit_B = self.number_N[0] + grown_B * (self.number_N[-1] - self.number_N[0])
        allowed_B = np.searchsorted(self.number_N, limit_B + 1e-9, side="right")
        return self.number_N[(share_B * allowed_B).astype(np.int64)]


@final
@dataclass(frozen=True)
class SequenceBatches:
    """Batches of sequences of one size each, which is drawn at random; seed and epoch decide everything.

    Repeats grow for so many batches from the fewest to the most; then all are drawn alike.
    """

    encoder: Encoder
    lengths: NumberRange
    repeats: NumberRange
    batch_size: int
    seed: int
    growing: int = 0

    def epoch(self, number: int) -> list[SequenceDraw]:
        random, first = np.random.default_rng([self.seed, number]), number * BATCHES
        grown_B = np.minimum(1.0, np.arange(first + 1, first + BATCHES + 1) / max(1, self.growing))
        length_B = self.lengths.draw(random.random(BATCHES))
        repeat_B = self.repeats.draw(random.random(BATCHES), grown_B)
        sizes = zip(length_B.tolist(), repeat_B.tolist(), strict=True)
        return [SequenceDraw(Size(*size), (self.seed, number, place)) for place, size in enumerate(sizes)]

    def load(self, drawn: SequenceDraw) -> SequenceBatch:
        random = np.random.default_rng([*drawn.seed, 1])
        return self.encoder.batch(draw_sequences(drawn.size, self.encoder.width, self.batch_size, random))
