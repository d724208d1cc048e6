"""Batches of rows: at random, or by a token budget with like lengths together. Seed and epoch decide which."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from saccade.data.gather import FlatSentences, gather_sentences
from saccade.data.grouping import split_by_budget
from saccade.data.sound.recordings import Recordings, pad_frames
from saccade.data.store import Store
from saccade.data.text.tokenizer import END, PAD, START
from saccade.errors import UserError


class PairBatch(NamedTuple):
    """Padded ids and their real lengths. The decoder reads `read_BT` from <s> on and writes `write_BT` up to </s>."""

    source_BS: Tensor
    source_length_B: Tensor
    read_BT: Tensor
    write_BT: Tensor
    target_length_B: Tensor

    def to(self, device: torch.device) -> PairBatch:
        return PairBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    def pad_to(self, num_rows: int, source_width: int, target_width: int) -> PairBatch:
        """Return the batch with more padding: more steps on both sides, and rows that read </s> and write nothing."""
        rows = num_rows - len(self.source_BS)
        widths = (source_width, target_width, target_width)
        source_BS, read_BT, write_BT = (
            F.pad(ids, (0, width - ids.shape[1], 0, rows), value=PAD)
            for ids, width in zip((self.source_BS, self.read_BT, self.write_BT), widths, strict=True)
        )
        source_BS[num_rows - rows :, 0] = END
        lengths = F.pad(self.source_length_B, (0, rows), value=1), F.pad(self.target_length_B, (0, rows))
        return PairBatch(source_BS, lengths[0], read_BT, write_BT, lengths[1])

    def repeat_rows(self) -> PairBatch:
        """Return a batch with all rows twice, one copy behind the other."""
        return PairBatch(*(torch.cat([tensor, tensor]) for tensor in self))

    @property
    def num_items(self) -> int:
        """Number of real tokens to write, </s> included."""
        return int(self.target_length_B.sum())


Rows = NDArray[np.int64]
Pad = Callable[[Sequence[Any]], tuple[Tensor, Tensor]]  # from sources to a tensor and their lengths
Load = Callable[[Any], Any]  # from rows to a batch


@final
class ShuffledBatches:
    """Batches of `size` random rows: every row once an epoch, and the last batch may be smaller."""

    def __init__(self, num_rows: int, *, size: int, seed: int, load: Load) -> None:
        if num_rows == 0:
            raise UserError("data: nothing is left to train on")
        self.load = load
        self._num_rows, self._size, self._seed = num_rows, size, seed

    def epoch(self, number: int) -> list[Rows]:
        """Return the rows of every batch of an epoch."""
        rows = np.random.default_rng([self._seed, number]).permutation(self._num_rows)
        return np.split(rows, range(self._size, self._num_rows, self._size))


class CorpusPart(NamedTuple):
    """A number of rows, read `weight` times an epoch. With a weight of 0.5, each epoch reads another random half."""

    num_rows: int
    weight: float = 1.0


class BatchSizes(NamedTuple):
    """A budget of tokens for a batch, the multiple that widths are rounded up to, and the greatest width there is."""

    tokens: int
    multiple: int = 1
    longest: int | None = None

    def round_width(self, longest: Any) -> Any:
        """Round the width of the longer side up to a multiple: of twice, four times as much ... in wide batches.

        There are eight sizes up to eight multiples, then four for each doubling.
        """
        doublings = np.ceil(np.log2(np.maximum(longest / (8 * self.multiple), 1))).astype(np.int64)
        step = self.multiple << doublings
        most = self.tokens if self.longest is None else min(self.tokens, self._round_up(self.longest, self.multiple))
        return np.minimum(self._round_up(longest, step), most)

    def round_narrow(self, longest: Any) -> Any:
        """Round the width of the shorter side up to a multiple that is a power of two."""
        doublings = np.ceil(np.log2(np.maximum(longest / self.multiple, 1))).astype(np.int64)
        return self.multiple << doublings

    def round_both(self, *longest: int) -> tuple[int, ...]:
        """Return the widths that the sides of a batch get."""
        width = int(self.round_width(max(longest)))
        return tuple(width if own == max(longest) else min(width, int(self.round_narrow(own))) for own in longest)

    @staticmethod
    def _round_up(number: Any, step: Any) -> Any:
        return -(-number // step) * step

    def count_rows(self, width: int) -> int:
        return max(1, self.tokens // width)


@final
class Buckets:
    """Batches by a token budget: rows are sorted by length with ties at random, then the batches are shuffled.

    `lengths` has an array for each side of a row (source and target, or one). Rows count through all parts. With
    `multiple`, widths are rounded up to multiples of it and the rows of a batch share that of their longer side:
    batches then come in few sizes, whose greatest is `longest`.
    """

    def __init__(
        self,
        lengths: Sequence[NDArray[np.integer]],
        *,
        tokens_per_batch: int,
        seed: int,
        load: Load,
        parts: Sequence[CorpusPart] = (),
        multiple: int = 1,
        longest: int | None = None,
    ) -> None:
        self.load, self._sizes, self._seed = load, BatchSizes(tokens_per_batch, multiple, longest), seed
        self._sides = [side.astype(np.int32) for side in lengths]
        self._widest: NDArray[np.int32] = np.maximum.reduce(self._sides)
        self._parts = parts or [CorpusPart(len(self._widest))]
        if len(self._widest) == 0:
            raise UserError("data: nothing is left to train on; everything was blank or too long")
        check_room(int(self._widest.max()), tokens_per_batch)

    def epoch(self, number: int) -> list[Rows]:
        """Return the rows of every batch of an epoch."""
        random = np.random.default_rng([self._seed, number])
        batches = list(self._cut(self._sort(draw_rows(self._parts, random), random), random))
        return [batches[index] for index in random.permutation(len(batches))]

    def _sort(self, rows: Rows, random: np.random.Generator) -> Rows:
        """Sort rows by the longer side, the budget's measure, then by the difference of the sides, up and down in turn.

        In turn, neighbours are alike on both sides. The directions are random, so that batches vary.
        """
        along, across = random.choice(np.array([-1, 1], np.int32), 2)
        longer, lean = along * self._widest[rows], across * (self._sides[0][rows] - self._sides[-1][rows])
        return rows[np.lexsort((np.where(longer % 2, lean, -lean), longer))]

    def _cut(self, rows: Rows, random: np.random.Generator) -> Iterator[Rows]:
        """Yield full batches after a first one of random size, so that the cuts fall elsewhere in each epoch."""
        if self._sizes.multiple > 1:
            yield from self._cut_evenly(rows)
            return
        width = self._widest[rows]
        full = next(split_by_budget(width, self._sizes.tokens)).stop
        first = int(random.integers(full)) if full < len(rows) else 0
        if first:
            yield rows[:first]
        for run in split_by_budget(width[first:], self._sizes.tokens):
            yield rows[first:][run]

    def _cut_evenly(self, rows: Rows) -> Iterator[Rows]:
        """Yield batches in which all rows have one width; those of like widths on the shorter side are together."""
        width = self._sizes.round_width(self._widest[rows])
        narrow = self._sizes.round_narrow(np.minimum.reduce(self._sides)[rows])
        for same in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(width)) + 1):
            same = same[np.argsort(narrow[same], kind="stable")]
            size = self._sizes.count_rows(int(width[same[0]]))
            yield from (rows[same[start : start + size]] for start in range(0, len(same), size))

    def real_share(self, number: int = 0) -> float:
        """Return the share of real tokens among all that an epoch's batches hold, padding included."""
        real = padded = 0
        for rows in self.epoch(number):
            for lengths in (side[rows] for side in self._sides):
                real += int(lengths.sum())
                padded += len(rows) * int(lengths.max())
        return real / padded


def check_room(longest: int, tokens_per_batch: int) -> None:
    """Refuse a budget that the longest sentence does not fit into."""
    if longest > tokens_per_batch:
        wanted = f"tokens_per_batch: {tokens_per_batch} given, but one sentence has {longest} tokens"
        raise UserError(f"{wanted}; allowed: {longest} or more, or a smaller data.max_length")


def bucket_pairs(
    *stores: Store,
    tokens_per_batch: int,
    seed: int,
    weights: Sequence[float] = (),
    recordings: Sequence[Recordings] = (),
    multiple: int = 1,
    longest: int | None = None,
) -> Buckets:
    """Plan batches of pairs from one store or several, each with its weight.

    With recordings, one for each store, the sources are references to these and become frames. With `multiple`, batches
    come in few sizes; each side has its own width.
    """
    sizes = BatchSizes(tokens_per_batch, multiple, longest)  # `load` must not know the plan: both would stay in memory
    sources, targets = [store.source for store in stores], [store.target for store in stores]
    starts = np.cumsum([0, *(len(store) for store in stores)]).tolist()

    def load_frames(row: int) -> Any:
        index = bisect_right(starts, row) - 1
        return recordings[index].load(sources[index][row - starts[index]])

    def load(rows: Rows) -> PairBatch:
        target = gather_sentences(targets, rows)
        if recordings:
            source_BS, source_length_B = pad_frames([load_frames(int(row)) for row in rows])
        else:
            source = gather_sentences(sources, rows)
            source_BS, source_length_B = torch.from_numpy(source.pad(END, first=False)), _lengths(source)
        read, write = (torch.from_numpy(target.pad(mark, first=mark == START)) for mark in (START, END))
        batch = PairBatch(source_BS, source_length_B, read, write, _lengths(target))
        if multiple == 1:
            return batch
        widths = sizes.round_both(batch.source_BS.shape[1], batch.read_BT.shape[1])
        return batch.pad_to(sizes.count_rows(max(widths)), *widths)

    all_heard = [own.all_lengths(side) for own, side in zip(recordings, sources, strict=False)]
    sides = all_heard or [side.lengths + 1 for side in sources], [side.lengths + 1 for side in targets]
    return Buckets(
        [np.concatenate(side) for side in sides],  # ids with </s>
        tokens_per_batch=tokens_per_batch,
        seed=seed,
        load=load,
        parts=weigh_stores(stores, weights),
        multiple=multiple,
        longest=longest,
    )


def weigh_stores(stores: Sequence[Store], weights: Sequence[float]) -> list[CorpusPart]:
    """Return each store's number of rows with its weight, 1 for all if none are given."""
    shares = weights or [1.0] * len(stores)
    return [CorpusPart(len(store), weight) for store, weight in zip(stores, shares, strict=True)]


def draw_rows(parts: Sequence[CorpusPart], random: np.random.Generator) -> Rows:
    """Draw the rows that an epoch reads, by the weights of the parts, in random order."""
    starts = np.cumsum([0, *(part.num_rows for part in parts)])
    found = [start + _draw_part(*part, random) for start, part in zip(starts, parts, strict=False)]
    return random.permutation(np.concatenate(found))


def _draw_part(count: int, weight: float, random: np.random.Generator) -> Rows:
    """Return every row as often as the weight's whole part says, and for its fraction a random share, never none."""
    whole = int(weight)
    rest = min(count, max(round(count * (weight - whole)), 0 if whole else 1))
    return np.concatenate([np.tile(np.arange(count), whole), random.choice(count, rest, replace=False, shuffle=False)])


def _lengths(side: FlatSentences) -> Tensor:
    """Return the lengths with </s>."""
    return torch.from_numpy(side.length_N + 1)


def collate_pairs(
    sources: Sequence[NDArray[Any]], targets: Sequence[NDArray[np.int32]], pad: Pad | None = None
) -> PairBatch:
    """Pad the ids of pairs into one batch; `pad` pads sources that aren't ids."""
    source_BS, source_length_B = (pad or pad_sources)(sources)
    write_BT = _pad([np.concatenate([target, [END]]) for target in targets])
    length_B = torch.tensor([len(target) + 1 for target in targets])
    return PairBatch(source_BS, source_length_B, decoder_input(targets), write_BT, length_B)


def decoder_input(targets: Sequence[NDArray[np.int32] | Sequence[int]]) -> Tensor:
    """Return the ids [B, T] that a decoder reads to write these targets: <s>, the target's ids, padding."""
    return _pad([np.concatenate([[START], np.asarray(target, np.int64)]) for target in targets])


def pad_sources(sources: Sequence[NDArray[np.int32] | Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad source ids, each with </s> at its end; return them and their lengths."""
    rows = [np.concatenate([np.asarray(source, np.int64), [END]]) for source in sources]
    return _pad(rows), torch.tensor([len(row) for row in rows])


def _pad(rows: Sequence[NDArray[np.int64]]) -> Tensor:
    table = np.full((len(rows), max(len(row) for row in rows)), PAD, np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return torch.from_numpy(table)
