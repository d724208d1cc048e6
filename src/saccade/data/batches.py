"""Batches by a token budget: sentences of like lengths together, in an order that is a function of seed and epoch."""

from __future__ import annotations

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
    """Which sentences go together in each epoch: sorted by length with ties at random, then the batches shuffled."""

    def __init__(self, store: Store, *, tokens_per_batch: int, seed: int) -> None:
        self._store, self._tokens, self._seed = store, tokens_per_batch, seed
        self._source = store.source.lengths + 1  # </s>
        self._target = store.target.lengths + 1
        if len(store) == 0:
            raise Mistake("data: no pair is left to train on; every one was blank or too long")
        longest = int(max(self._source.max(), self._target.max()))
        if longest > tokens_per_batch:
            wanted = f"tokens_per_batch: {tokens_per_batch} given, but one sentence has {longest} tokens"
            raise Mistake(f"{wanted}; allowed: {longest} or more, or a smaller data.max_length")

    def epoch(self, number: int) -> list[NDArray[np.int64]]:
        """The batches of an epoch, as rows of the store."""
        random = np.random.default_rng([self._seed, number])
        order = random.permutation(len(self._store))
        order = order[np.lexsort((self._source[order], self._target[order]))]
        batches = list(self._cut(order))
        return [batches[index] for index in random.permutation(len(batches))]

    def _cut(self, order: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Runs of the order whose padded size stays within the budget on both sides."""
        start, widest = 0, 0
        for stop, row in enumerate(order):
            width = max(widest, int(self._source[row]), int(self._target[row]))
            if (stop - start + 1) * width > self._tokens:
                yield order[start:stop]
                start, width = stop, max(int(self._source[row]), int(self._target[row]))
            widest = width
        yield order[start:]

    def load(self, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """The padded tensors of a batch."""
        sources = [self._store.source[int(row)] for row in rows]
        targets = [self._store.target[int(row)] for row in rows]
        return collate(sources, targets)

    def real_share(self, number: int = 0) -> float:
        """The share of real tokens among all that a batch holds, over an epoch and both sides."""
        real = padded = 0
        for rows in self.epoch(number):
            for lengths in (self._source[rows], self._target[rows]):
                real += int(lengths.sum())
                padded += len(rows) * int(lengths.max())
        return real / padded


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
