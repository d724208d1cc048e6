"""Batches by a token budget: sentences of like lengths together, in an order that is a function of seed and epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.mistakes import Mistake
from saccade.data.store import Store
from saccade.data.tokenizer import END, PAD, START


class Batch(NamedTuple):
    """Padded ids and their real lengths. The target is read from <s> on and written up to </s>."""

    source_BS: Tensor
    source_length_B: Tensor
    read_BT: Tensor
    write_BT: Tensor
    target_length_B: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @property
    def num_target_tokens(self) -> int:
        """Real tokens to write, </s> included."""
        return int(self.target_length_B.sum())


@final
class BatchPlan:
    """Which sentences go together in each epoch: sorted by length with ties at random, then the batches shuffled.

    A store of weight 2 is read twice an epoch; of one of weight 0.5, another half by chance. Rows count through all
    stores.
    """

    def __init__(self, *stores: Store, tokens_per_batch: int, seed: int, weights: Sequence[float] = ()) -> None:
        self._stores, self._tokens, self._seed = stores, tokens_per_batch, seed
        self._weights = weights or [1.0] * len(stores)
        self._starts = np.cumsum([0, *(len(store) for store in stores)]).tolist()
        if self._starts[-1] == 0:
            raise Mistake("data: no pair is left to train on; every one was blank or too long")
        self._source = np.concatenate([store.source.lengths.astype(np.int32) for store in stores]) + 1  # </s>
        self._target = np.concatenate([store.target.lengths.astype(np.int32) for store in stores]) + 1
        longest = int(max(self._source.max(), self._target.max()))
        if longest > tokens_per_batch:
            wanted = f"tokens_per_batch: {tokens_per_batch} given, but one sentence has {longest} tokens"
            raise Mistake(f"{wanted}; allowed: {longest} or more, or a smaller data.max_length")

    def epoch(self, number: int) -> list[NDArray[np.int64]]:
        """The batches of an epoch, as rows."""
        random = np.random.default_rng([self._seed, number])
        batches = list(self._cut(self._sorted(self._drawn(random), random), random))
        return [batches[index] for index in random.permutation(len(batches))]

    def load(self, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """The padded tensors of a batch."""
        sources, targets = [], []
        for row in rows:
            index = bisect_right(self._starts, row) - 1
            store, own_row = self._stores[index], int(row) - self._starts[index]
            sources.append(store.source[own_row])
            targets.append(store.target[own_row])
        return collate(sources, targets)

    def _drawn(self, random: np.random.Generator) -> NDArray[np.int64]:
        """The rows that an epoch reads, by the weights."""
        parts = [
            start + _some(len(store), weight, random)
            for start, store, weight in zip(self._starts[:-1], self._stores, self._weights, strict=True)
        ]
        return random.permutation(np.concatenate(parts))

    def _sorted(self, rows: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """By the longer side, the budget's measure; then by which side is longer and how much, to and fro.

        To and fro, neighbours are alike on both sides at every turn. The directions are by chance, to vary the batches.
        """
        source, target = self._source[rows], self._target[rows]
        along, across = random.choice(np.array([-1, 1], np.int32), 2)
        longer, lean = along * np.maximum(source, target), across * (source - target)
        return rows[np.lexsort((np.where(longer % 2, lean, -lean), longer))]

    def _cut(self, rows: NDArray[np.int64], random: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Full batches after a first one of any size, so that the cuts fall elsewhere in each epoch."""
        width = np.maximum(self._source[rows], self._target[rows])
        full = next(full_runs(width, self._tokens)).stop
        first = int(random.integers(full)) if full < len(rows) else 0
        if first:
            yield rows[:first]
        for run in full_runs(width[first:], self._tokens):
            yield rows[first:][run]

    def real_share(self, number: int = 0) -> float:
        """The share of real tokens among all that a batch holds, over an epoch and both sides."""
        real = padded = 0
        for rows in self.epoch(number):
            for lengths in (self._source[rows], self._target[rows]):
                real += int(lengths.sum())
                padded += len(rows) * int(lengths.max())
        return real / padded


def full_runs(width: NDArray[np.integer], budget: int) -> Iterator[slice]:
    """Runs of rows whose number times their greatest width stays within the budget, each as long as can be."""
    start, numbers = 0, np.arange(1, budget + 1)
    while start < len(width):
        widest = np.maximum.accumulate(width[start : start + budget // int(width[start])])
        padded = widest * numbers[: len(widest)]
        run = slice(start, start + int(np.searchsorted(padded, budget, side="right")))
        yield run
        start = run.stop


def _some(count: int, weight: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Every number below `count` as often as the weight is whole; of its rest, that share by chance, never none."""
    whole = int(weight)
    rest = min(count, max(round(count * (weight - whole)), 0 if whole else 1))
    return np.concatenate([np.tile(np.arange(count), whole), random.choice(count, rest, replace=False, shuffle=False)])


def collate(sources: Sequence[NDArray[np.int32]], targets: Sequence[NDArray[np.int32]]) -> Batch:
    """Ids of sentences as one batch."""
    source_BS, source_length_B = pad_sources(sources)
    read = _padded([np.concatenate([[START], target]) for target in targets])
    write = _padded([np.concatenate([target, [END]]) for target in targets])
    return Batch(source_BS, source_length_B, read, write, torch.tensor([len(target) + 1 for target in targets]))


def pad_sources(sources: Sequence[NDArray[np.int32] | Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Source ids with </s> behind them, padded, and their lengths."""
    rows = [np.concatenate([np.asarray(source, np.int64), [END]]) for source in sources]
    return _padded(rows), torch.tensor([len(row) for row in rows])


def _padded(rows: Sequence[NDArray[np.int64]]) -> Tensor:
    table = np.full((len(rows), max(len(row) for row in rows)), PAD, np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return torch.from_numpy(table)
