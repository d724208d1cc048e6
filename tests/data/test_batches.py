"""Stores and batches: reused when nothing changed, full, complete, and the same for the same seed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.data.batches import BatchPlan
from saccade.data.corpus import Corpus, Pair
from saccade.data.mistakes import Mistake
from saccade.data.store import Store, prepare
from saccade.data.tokenizer import END, PAD, START, train_tokenizer

DATA = Path(os.environ.get("SACCADE_DATA", Path(__file__).parents[3] / "shared" / "data"))


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def store_of(folder: Path, pairs: list[Pair], *, max_length: int = 50, version: int = 1) -> Store:
    file = folder / "data.txt"
    file.write_text(repr(pairs), encoding="utf-8")
    return prepare(
        folder / "stores",
        lambda: pairs,
        [file],
        encode=(numbers, numbers),
        identity={"version": version},
        max_length=max_length,
    )


def random_pairs(count: int) -> list[Pair]:
    random = np.random.default_rng(1)
    lengths = random.integers(1, 30, (count, 2))
    return [Pair(*(" ".join(map(str, random.integers(4, 99, n))) for n in row)) for row in lengths]


def test_a_store_holds_what_was_encoded(tmp_path: Path) -> None:
    pairs = [Pair("5 6", "7"), Pair("", "8"), Pair("9 " * 51, "9"), Pair("10", "11 12 13")]
    store = store_of(tmp_path, pairs)
    assert [store.source[i].tolist() for i in range(len(store))] == [[5, 6], [10]]
    assert [store.target[i].tolist() for i in range(len(store))] == [[7], [11, 12, 13]]
    assert store.left_out == {"blank": 1, "too long": 1}


def test_a_store_is_found_again_and_made_anew_when_something_changed(tmp_path: Path) -> None:
    def folders() -> int:
        return len(list((tmp_path / "stores").iterdir()))

    store_of(tmp_path, [Pair("5", "6")])
    store_of(tmp_path, [Pair("5", "6")])
    assert folders() == 1
    store_of(tmp_path, [Pair("5", "7")])
    store_of(tmp_path, [Pair("5", "7")], version=2)
    store_of(tmp_path, [Pair("5", "7")], version=2, max_length=9)
    assert folders() == 4


def test_an_interrupted_store_leaves_nothing_behind(tmp_path: Path) -> None:
    def broken() -> list[Pair]:
        raise KeyboardInterrupt

    file = tmp_path / "x"
    file.write_text("x", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "stores", broken, [file], encode=(numbers, numbers), identity={}, max_length=9)
    assert list((tmp_path / "stores").iterdir()) == []


def test_every_sentence_once_an_epoch_within_the_budget(tmp_path: Path) -> None:
    pairs = random_pairs(500)
    plan = BatchPlan(store_of(tmp_path, pairs), tokens_per_batch=200, seed=3)
    epoch = plan.epoch(0)
    assert sorted(np.concatenate(epoch).tolist()) == list(range(500))
    for rows in epoch:
        batch = plan.load(rows)
        assert max(batch.source_BS.numel(), batch.write_BT.numel()) <= 200
    again, other = plan.epoch(0), plan.epoch(1)
    assert all(np.array_equal(a, b) for a, b in zip(epoch, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(epoch, other, strict=False))


def test_a_batch_by_hand(tmp_path: Path) -> None:
    plan = BatchPlan(store_of(tmp_path, [Pair("5 6", "7"), Pair("8", "9 10")]), tokens_per_batch=100, seed=1)
    batch = plan.load([0, 1])
    assert batch.source_BS.tolist() == [[5, 6, END], [8, END, PAD]]
    assert batch.source_length_B.tolist() == [3, 2]
    assert batch.read_BT.tolist() == [[START, 7, PAD], [START, 9, 10]]
    assert batch.write_BT.tolist() == [[7, END, PAD], [9, 10, END]]
    assert batch.num_target_tokens == 5
    assert batch.to(torch.device("cpu")).read_BT.dtype == torch.long


def test_mistakes_are_named(tmp_path: Path) -> None:
    store = store_of(tmp_path, [Pair("5 6 7", "8")])
    with pytest.raises(Mistake, match=r"tokens_per_batch: 3 given, but one sentence has 4 tokens; allowed: 4 or more"):
        BatchPlan(store, tokens_per_batch=3, seed=1)
    with pytest.raises(Mistake, match=r"data: no pair is left to train on"):
        BatchPlan(store_of(tmp_path, [Pair("", "8")]), tokens_per_batch=3, seed=1)


@pytest.mark.skipif(not (DATA / "multi30k").exists(), reason=f"needs Multi30k at {DATA} (set SACCADE_DATA)")
def test_multi30k_batches_are_at_least_95_percent_real(tmp_path: Path) -> None:
    sides = [str(DATA / "multi30k" / f"train.lc.norm.tok.{language}.gz") for language in ("en", "de")]
    corpus = Corpus(*sides)
    tokenizer = train_tokenizer("words", (text for pair in corpus.pairs() for text in pair), 6000)
    encode = (tokenizer.encode, tokenizer.encode)
    store = prepare(tmp_path, corpus.pairs, corpus.files(), encode=encode, identity={}, max_length=100)
    assert len(store) == 29_000
    assert BatchPlan(store, tokens_per_batch=2048, seed=1).real_share() >= 0.95
