"""Pairs packed into rows of a fixed size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.data import packing
from saccade.data.packing import IGNORED, PackedBatch
from saccade.data.store import SideLimit, Store, encode_sides, prepare_store
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import END, START
from saccade.errors import UserError


def store(folder: Path, name: str, count: int, seed: int) -> Store:
    random = np.random.default_rng(seed)
    pairs = [
        Pair(*(" ".join(map(str, random.integers(10, 90, random.integers(1, 12)))) for _ in "st")) for _ in range(count)
    ]
    path = folder / name
    path.write_text(f"{pairs}", "utf-8")

    def encode(text: str) -> list[int]:
        return [int(word) for word in text.split()]

    return prepare_store(
        folder / ".data",
        lambda: pairs,
        [path],
        encode=encode_sides(encode, encode),
        identity={},
        limits=(SideLimit(50),) * 2,
    )


def shape(tokens: int) -> packing.PackedShape:
    """The shape of batches for such pairs: 1 to 11 words a side, and </s>."""
    return packing.choose_shape([7.0, 7.0], (12, 12), tokens)


def unpacked(batch: PackedBatch) -> list[tuple[list[int], list[int], list[int]]]:
    found = []
    source_start, target_start = batch.source.start_N.tolist(), batch.target.start_N.tolist()
    for row in range(len(source_start) - 1):
        source = batch.source.ids_1T[0, source_start[row] : source_start[row + 1]].tolist()
        target = slice(target_start[row], target_start[row + 1])
        if source:
            found.append((source, batch.target.ids_1T[0, target].tolist(), batch.write_T[target].tolist()))
    return found


@pytest.mark.parametrize("num_stores", [1, 3])
def test_every_pair_is_in_one_batch_of_an_epoch_as_it_was(tmp_path: Path, num_stores: int) -> None:
    stores = [store(tmp_path, f"{number}.txt", 40 + number, number) for number in range(num_stores)]
    plan = packing.pack_pairs(*stores, shape=shape(64), seed=3)
    batches = [plan.load(rows) for rows in plan.epoch(0)]
    found = sorted(pair for batch in batches for pair in unpacked(batch))
    wanted = [(own.source[row].tolist(), own.target[row].tolist()) for own in stores for row in range(len(own))]
    assert found == sorted(([*source, END], [START, *target], [*target, END]) for source, target in wanted)
    assert (
        len(
            {
                tuple(tensor.shape for tensor in (*batch.source[:3], *batch.target[:3], batch.write_T))
                for batch in batches
            }
        )
        == 1
    )
    for batch in batches:
        assert batch.num_items == int((batch.write_T != IGNORED).sum())
        ends = batch.target.start_N.tolist()
        assert batch.target.place_T[ends[0] : ends[1]].tolist() == list(range(ends[1] - ends[0]))
    assert batches[0].to(torch.device("cpu")).num_items == batches[0].num_items
    again, other = plan.epoch(0), plan.epoch(1)
    assert all(np.array_equal(a, b) for a, b in zip(plan.epoch(0), again, strict=True))
    assert not np.array_equal(again[0], other[0])


def test_little_is_padding(tmp_path: Path) -> None:
    plan = packing.pack_pairs(store(tmp_path, "a.txt", 2000, 1), shape=shape(1024), seed=1)
    assert plan.real_share() > 0.95


def test_a_sentence_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(UserError, match=r"tokens_per_batch: 5 given, but one sentence has 12 tokens"):
        shape(5)
