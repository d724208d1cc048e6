"""The sentences that all contestants train on: lengths are drawn, ids are random; and the peers' batches of them.

We read them through a store, as any run does. The peers get rectangles, as their users make them: sentences of similar
lengths, padded to one of a few widths, so that a compiled model sees few shapes.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.batches import collate_pairs
from saccade.data.store import RaggedArray, RaggedWriter, Store
from saccade.data.text.tokenizer import PAD, SPECIAL
from saccade.errors import UserError

SPREAD = 0.5  # of the logarithm of lengths: half of all sentences have 18 to 34 tokens where the mean is 28
LEAN = 0.15  # of the logarithm of target over source
STEP = 8  # widths of rectangles are multiples, which matrix units like
SIDES = ("source", "target")
Integers = NDArray[np.int64]


@final
@dataclass(frozen=True)
class TrainingText:
    """Sentences given by the lengths of both sides, </s> included; a batch has `tokens` tokens on either side."""

    name: str
    source_N: Integers
    target_N: Integers
    tokens: int
    step: int = STEP

    def widths(self) -> Integers:
        """Return the width of the narrowest rectangle that holds each sentence."""
        return -(-np.maximum(self.source_N, self.target_N) // self.step) * self.step

    def store(self, folder: Path, vocabulary: int, seed: int = 1) -> Store:
        """Write random ids of these lengths into a store like that of a corpus."""
        random = np.random.default_rng(seed)
        folder.mkdir(parents=True, exist_ok=True)
        for name, lengths in zip(SIDES, (self.source_N, self.target_N), strict=True):
            ids = random.integers(len(SPECIAL), vocabulary, int(lengths.sum()), np.int32)
            with RaggedWriter(folder, name) as writer:
                for row in np.split(ids, np.cumsum(lengths)[:-1]):
                    writer.add(row[1:])  # </s> comes with the batch
        source, target = (RaggedArray.open(folder, name) for name in SIDES)
        return Store(source, target, np.zeros(len(source), np.uint64), {}, {}, self.name)


def log_normal(mean: float, tokens: int, num_batches: int, seed: int = 1) -> TrainingText:
    """Draw log-normal lengths for about `num_batches` batches; a target is about as long as its source."""
    random = np.random.default_rng(seed)
    count, longest = int(num_batches * tokens / mean) + 1, min(_round_up(4.5 * mean), tokens)
    source = np.exp(random.normal(np.log(mean) - SPREAD**2 / 2, SPREAD, count))
    target = source * np.exp(random.normal(0, LEAN, count))
    source_N, target_N = (np.rint(side).astype(np.int64).clip(2, longest) for side in (source, target))
    return TrainingText(f"log-normal, mean {mean:g}", source_N, target_N, tokens)


def rectangle(batch: int, length: int, num_batches: int) -> TrainingText:
    """Make sentences of equal length, which need no padding: the best case for models that pad."""
    lengths = np.full(batch * num_batches, length, np.int64)
    return TrainingText(f"{batch} x {length}, nothing to pad", lengths, lengths, batch * length, step=1)


def multi30k(folder: Path, tokens: int, num_batches: int) -> TrainingText:
    """Take the lengths of Multi30k's training pairs (de-en), in words and marks, and repeat them as needed."""
    sides = []
    for language in ("de", "en"):
        path = folder / f"train.{language}.gz"
        if not path.is_file():
            raise UserError(f"--data: there is no file at {path}; wanted: a folder with train.de.gz and train.en.gz")
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            sides.append(np.array([len(re.findall(r"\w+|[^\w\s]", line)) + 1 for line in lines]).clip(2, tokens))
    times = -(-num_batches * tokens // int(sides[0].sum()))
    source_N, target_N = (np.tile(side, times) for side in sides)
    return TrainingText("Multi30k's lengths", source_N, target_N, tokens)


class PaddedBatch(NamedTuple):
    """A padded batch as the peers take it; it has no mask if its source needs no padding."""

    source_BS: Tensor
    real_BS: Tensor | None
    read_BT: Tensor
    write_BT: Tensor

    @property
    def num_real(self) -> int:
        return int((self.write_BT != PAD).sum())

    def to(self, device: torch.device) -> PaddedBatch:
        return PaddedBatch(*(None if tensor is None else tensor.to(device) for tensor in self))  # type: ignore[arg-type]


def padded_batches(work: TrainingText, store: Store, *, num_widths: int | None, count: int) -> list[PaddedBatch]:
    """Pad sentences to full batches and return `count` of them, evenly from the narrowest to the widest."""
    own = work.widths()
    widths = np.array(sorted(set(own.tolist())) if num_widths is None else tight_widths(own, num_widths))
    place = np.searchsorted(widths, own)
    full = [
        (int(width), rows)
        for index, width in enumerate(widths)
        for rows in _cut(np.flatnonzero(place == index), work.tokens // int(width))
    ]
    if not full:
        raise UserError(f"--tokens: {work.tokens} given; the sentences don't fill one batch")
    chosen = ((np.arange(count) + 0.5) * len(full) / count).astype(int)
    return [_pad(store, *full[index]) for index in chosen]


def tight_widths(own: Integers, most: int) -> list[int]:
    """Choose at most `most` widths, so that padding is as small as possible."""
    each, count = np.unique(own, return_counts=True)
    before = np.concatenate([[0], np.cumsum(count)])
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}  # of the sentences up to a width: cost and widths
    for _ in range(most):
        longer = dict(best)
        for end in range(1, len(each) + 1):
            ways = [
                (cost + float(before[end] - before[start]) * float(each[end - 1]), [*found, int(each[end - 1])])
                for start, (cost, found) in best.items()
                if start < end
            ]
            longer[end] = min([*ways, *([best[end]] if end in best else [])])
        best = longer
    return best[len(each)][1]


def _cut(rows: Integers, size: int) -> list[Integers]:
    """Cut rows into full batches, and drop the rest."""
    return [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)] if size else []


def _pad(store: Store, width: int, rows: Sequence[int] | Integers) -> PaddedBatch:
    batch = collate_pairs([store.source[row] for row in rows], [store.target[row] for row in rows])
    real_BS = torch.arange(width) < batch.source_length_B[:, None]
    sides = (_widen(ids, width) for ids in (batch.source_BS, batch.read_BT, batch.write_BT))
    source_BS, read_BT, write_BT = sides
    return PaddedBatch(source_BS, None if bool(real_BS.all()) else real_BS, read_BT, write_BT)


def _widen(ids_BT: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(ids_BT, (0, width - ids_BT.shape[1]), value=PAD)


def _round_up(length: float) -> int:
    return -(-int(length) // STEP) * STEP
