"""Corpora read a portion at a time: everything once a pass, from everywhere, and the same for the same seed."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from saccade.data import packing, portions
from saccade.data.batches import PairBatch, bucket_pairs
from saccade.data.portions import Portions
from saccade.data.store import SideLimit, Store, encode_sides, join_rows, prepare_store
from saccade.data.text.corpus import Pair
from saccade.tasks.steps import steps_of_epoch


def numbered(folder: Path, first: int, count: int) -> Store:
    """A store whose pairs have their number, and as many more words as it says."""
    pairs = [Pair(" ".join(["5"] * (row % 3) + [str(row)]), str(row)) for row in range(first, first + count)]
    (file := folder / f"{first}").write_text("x", encoding="utf-8")

    def encode(text: str) -> list[int]:
        return [int(word) for word in text.split()]

    limits = (SideLimit(50),) * 2
    encoders, identity = encode_sides(encode, encode), {"first": first, "count": count}
    return prepare_store(folder / "s", lambda: pairs, [file], encode=encoders, identity=identity, limits=limits)


def planned(*stores: Store, buffer: int, weights: tuple[float, ...] = ()) -> Portions:
    def make(portion: Store) -> Any:
        return bucket_pairs(portion, tokens_per_batch=40, seed=3)

    return Portions(stores, make, buffer=buffer, seed=3, weights=weights)


def numbers(plan: Portions, portion: int) -> list[int]:
    batches: list[PairBatch] = [plan.load(rows) for rows in plan.epoch(portion)]
    return [number for batch in batches for number in batch.write_BT[:, 0].tolist()]


def test_a_pass_reads_every_pair_once_and_the_next_one_in_another_order(tmp_path: Path) -> None:
    plan = planned(numbered(tmp_path, 100, 1000), numbered(tmp_path, 2000, 300), buffer=400)
    assert plan.num_portions == 4
    passes = [[numbers(plan, portion) for portion in range(first, first + 4)] for first in (0, 4)]
    for portions_of_pass in passes:
        assert sorted(n for own in portions_of_pass for n in own) == [*range(100, 1100), *range(2000, 2300)]
        assert all(260 <= len(own) <= 400 for own in portions_of_pass)
    assert sorted(passes[0][0]) != sorted(passes[1][0])
    assert numbers(plan, 6) == passes[1][2]


def test_a_portion_comes_from_everywhere(tmp_path: Path) -> None:
    plan = planned(numbered(tmp_path, 0, 1280), buffer=320)
    own = np.array(numbers(plan, 1))
    assert all(((own >= first) & (own < first + 320)).sum() > 30 for first in range(0, 1280, 320))
    assert np.corrcoef(own, np.arange(len(own)))[0, 1] < 0.2


def test_a_pair_keeps_its_sides(tmp_path: Path) -> None:
    plan = planned(numbered(tmp_path, 100, 500), buffer=100)
    for batch in (plan.load(rows) for rows in plan.epoch(2)):
        for source, length, number in zip(batch.source_BS, batch.source_length_B, batch.write_BT[:, 0], strict=True):
            assert source[length - 2] == number
            assert length == number % 3 + 2


def test_weights_say_how_often_a_corpus_is_read(tmp_path: Path) -> None:
    plan = planned(numbered(tmp_path, 0, 640), numbered(tmp_path, 1000, 640), buffer=200, weights=(2.0, 0.5))
    assert plan.num_portions == 8
    counts = np.bincount([n for portion in range(8) for n in numbers(plan, portion)], minlength=1640)
    assert (counts[:640] == 2).all()
    assert (counts[1000:].sum(), counts[1000:].max()) == (320, 1)


@pytest.mark.parametrize("kind", ["padded", "even", "packed"])
def test_a_portion_leaves_the_memory_with_its_last_batch(tmp_path: Path, kind: str) -> None:
    shape = packing.choose_shape([3.0, 2.0], (4, 2), 40)
    make: Any = {
        "padded": partial(bucket_pairs, tokens_per_batch=40, seed=3),
        "even": partial(bucket_pairs, tokens_per_batch=40, seed=3, multiple=2),
        "packed": partial(packing.pack_pairs, shape=shape, seed=3),
    }[kind]
    plan = Portions([numbered(tmp_path, 100, 500)], make, buffer=100, seed=3)
    batches = plan.epoch(0)
    assert plan.load(batches[0]).num_items
    first = weakref.ref(batches[0].plan)
    gc.disable()  # it would find cycles too, but late: a portion is few and large objects
    try:
        batches = plan.epoch(1)
        assert first() is None
    finally:
        gc.enable()
    assert plan.load(batches[0]).num_items


def test_all_portions_count_for_the_steps_of_a_run(tmp_path: Path) -> None:
    config: Any = SimpleNamespace(training=SimpleNamespace(accumulate=1))
    plan = planned(numbered(tmp_path, 0, 1280), buffer=320)
    steps = sum(len(plan.epoch(portion)) for portion in range(4))
    assert steps_of_epoch(config, plan) == pytest.approx(steps, rel=0.1)


def test_blocks_are_read_and_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "FEWEST_BLOCKS", 3)
    store = numbered(tmp_path, 100, 500)
    part = store.source.read(20, 30)
    assert type(part.steps) is np.ndarray
    assert [row.tolist() for row in map(part.__getitem__, range(10))] == [
        [5] * (row % 3) + [row] for row in range(120, 130)
    ]
    whole = join_rows([*store.source.blocks(7)])
    assert np.array_equal(whole.steps, store.source.steps)
    assert np.array_equal(whole.offsets, store.source.offsets)
