"""Packs sentences one behind the other into rows of a fixed size: only the end of a row is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.batches import CorpusPart, Load, Rows, check_room, draw_rows, weigh_stores
from saccade.data.gather import FlatSentences, gather_sentences
from saccade.data.store import Store
from saccade.data.text.tokenizer import END, PAD, START

IGNORED = -1  # the target of a step that is padding
ROOM = 1.02  # extra space on the shorter side, whose share of a batch varies
SLOTS = 1.2  # slots of a row for each sentence of average length
MULTIPLE = 64  # of a row's size, which matrix products like


class PackedRow(NamedTuple):
    """Sentences one behind the other. `start_N` is as `masks.packed` takes it; `place_T` counts within a sentence."""

    ids_1T: Tensor
    start_N: Tensor
    place_T: Tensor
    longest: int  # no sentence has more tokens

    def to(self, device: torch.device) -> PackedRow:
        ids_1T, start_N, place_T = (tensor.to(device, non_blocking=True) for tensor in self[:3])
        return PackedRow(ids_1T, start_N, place_T, self.longest)


class PackedBatch(NamedTuple):
    """Pairs packed into two rows, and the id to write at each target step, IGNORED at padding."""

    source: PackedRow
    target: PackedRow
    write_T: Tensor

    @property
    def num_items(self) -> int:
        """Number of real tokens to write, </s> included."""
        return int((self.write_T != IGNORED).sum())

    def to(self, device: torch.device) -> PackedBatch:
        write_T = self.write_T.to(device, non_blocking=True)
        return PackedBatch(self.source.to(device), self.target.to(device), write_T)


class PackedShape(NamedTuple):
    """The size of every batch: tokens on either side, and the most sentences."""

    source: int
    target: int
    slots: int
    longest: tuple[int, int]  # no source has more tokens, and no target


@final
class PackedBatches:
    """Batches of random rows, filled until one side or the slots are full; every row comes once an epoch."""

    def __init__(
        self,
        lengths: Sequence[NDArray[np.integer]],
        *,
        shape: PackedShape,
        seed: int,
        load: Load,
        parts: Sequence[CorpusPart] = (),
    ) -> None:
        self.load, self._seed, self.shape = load, seed, shape
        self._sides = [side.astype(np.int64) for side in lengths]
        self._parts = parts or [CorpusPart(len(self._sides[0]))]

    def epoch(self, number: int) -> list[Rows]:
        """Return the rows of every batch of an epoch."""
        return list(self._cut(draw_rows(self._parts, np.random.default_rng([self._seed, number]))))

    def _cut(self, rows: Rows) -> Iterator[Rows]:
        ends = [np.cumsum(side[rows]) for side in self._sides]
        start = 0
        while start < len(rows):
            before = [int(end[start - 1]) if start else 0 for end in ends]
            full = [
                int(np.searchsorted(end, done + size, side="right"))
                for end, done, size in zip(ends, before, self.shape[:2], strict=True)
            ]
            stop = min(*full, start + self.shape.slots)
            yield rows[start:stop]
            start = stop

    def real_share(self, number: int = 0) -> float:
        """Return the share of real tokens among all that an epoch's batches hold, padding included."""
        batches = self.epoch(number)
        real = sum(int(side[rows].sum()) for rows in batches for side in self._sides)
        return real / (len(batches) * (self.shape.source + self.shape.target))


def choose_shape(means: Sequence[float], longest: tuple[int, int], tokens: int) -> PackedShape:
    """Give `tokens` to the side that is longer in the whole corpus, and to the other its share and a little more."""
    check_room(max(longest), tokens)
    wanted_sizes = [
        min(tokens, max(most, int(ROOM * tokens * mean / max(means))))
        for mean, most in zip(means, longest, strict=True)
    ]
    source, target = (min(tokens, -(-size // MULTIPLE) * MULTIPLE) for size in wanted_sizes)
    return PackedShape(source, target, int(SLOTS * tokens / max(means)) + 1, longest)


def pack_pairs(*stores: Store, shape: PackedShape, seed: int, weights: Sequence[float] = ()) -> PackedBatches:
    """Plan packed batches of pairs from one store or several, each with its weight."""
    sources, targets = [store.source for store in stores], [store.target for store in stores]

    def load(rows: Rows) -> PackedBatch:
        source, target = gather_sentences(sources, rows), gather_sentences(targets, rows)
        write = np.full(shape.target, IGNORED, np.int64)
        target.put(write, END, first=False)
        return PackedBatch(
            _pack_row(source, shape.source, shape.slots, END, shape.longest[0], first=False),
            _pack_row(target, shape.target, shape.slots, START, shape.longest[1], first=True),
            torch.from_numpy(write),
        )

    return PackedBatches(
        [np.concatenate([side.lengths + 1 for side in sides]) for sides in (sources, targets)],  # ids with </s>
        shape=shape,
        seed=seed,
        load=load,
        parts=weigh_stores(stores, weights),
    )


def _pack_row(sentences: FlatSentences, size: int, slots: int, mark: int, longest: int, *, first: bool) -> PackedRow:
    """Write sentences one behind the other, each with a mark before it (`first`) or behind it."""
    ids, start_N = np.full(size, PAD, np.int64), sentences.starts()
    sentences.put(ids, mark, first=first)
    starts = np.full(slots + 1, start_N[-1], np.int32)
    starts[: len(start_N)] = start_N
    place = np.zeros(size, np.int64)
    place[: start_N[-1]] = np.arange(start_N[-1]) - np.repeat(start_N[:-1], np.diff(start_N))
    return PackedRow(torch.from_numpy(ids)[None], torch.from_numpy(starts), torch.from_numpy(place), longest)
