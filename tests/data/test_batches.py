"""Stores and batches: reused when nothing changed, full, complete, and the same for the same seed."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.batches import BatchSizes, bucket_pairs, collate_pairs, decoder_input
from saccade.data.grouping import group_by_length, split_by_budget
from saccade.data.store import SideLimit, Store, count_duplicates, encode_sides, prepare_store
from saccade.data.text.corpus import Corpus, Pair
from saccade.data.text.tokenizer import END, PAD, START, train_tokenizer
from saccade.errors import UserError

DATA = Path(os.environ.get("SACCADE_DATA", Path(__file__).parents[3] / "shared" / "data"))


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def store_of(folder: Path, pairs: list[Pair], *, max_length: int = 50, version: int = 1) -> Store:
    folder.mkdir(exist_ok=True)
    file = folder / "data.txt"
    file.write_text(repr(pairs), encoding="utf-8")
    return prepare_store(
        folder / "stores",
        lambda: pairs,
        [file],
        encode=encode_sides(numbers, numbers),
        identity={"version": version},
        limits=(SideLimit(max_length),) * 2,
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
    assert store.left_out == {"blank": 1, "too long (source)": 1, "too long (target)": 0}
    assert store.first_left_out == {"blank": (1, 0), "too long (source)": (2, 0)}


def test_batches_are_gathered_from_several_stores(tmp_path: Path) -> None:
    stores = [store_of(tmp_path / str(i), random_pairs(40 + i), version=i) for i in range(3)]
    plan = bucket_pairs(*stores, tokens_per_batch=90, seed=2)
    sources, targets = ([row for store in stores for row in getattr(store, side)] for side in ("source", "target"))
    for rows in plan.epoch(0):
        expected = collate_pairs([sources[row] for row in rows], [targets[row] for row in rows])
        for one, other in zip(plan.load(rows), expected, strict=True):
            assert torch.equal(one, other)


def test_a_side_may_be_cut_while_the_other_is_dropped(tmp_path: Path) -> None:
    pairs = [Pair("1 2 3 4", "1 2"), Pair("1", "1 2 3"), Pair("1 2", "1"), Pair("1 2 3", "1 2 3")]
    (file := tmp_path / "pairs").write_text("x", encoding="utf-8")

    def store(source: SideLimit, target: SideLimit) -> Store:
        limits, encode = (source, target), encode_sides(numbers, numbers)
        return prepare_store(tmp_path, lambda: pairs, [file], encode=encode, identity={}, limits=limits)

    cut = store(SideLimit(3, is_cut=True), SideLimit(2))
    assert [row.tolist() for row in map(cut.source.__getitem__, range(2))] == [[1, 2, 3], [1, 2]]
    assert (cut.num_cut, cut.left_out["too long (target)"], cut.left_out["too long (source)"]) == ((1, 0), 2, 0)
    both = store(SideLimit(2, is_cut=True), SideLimit(1, is_cut=True))
    assert [row.tolist() for row in map(both.target.__getitem__, range(4))] == [[1]] * 4
    assert both.num_cut == (2, 3)
    assert store(SideLimit(3), SideLimit(2)).num_cut == (0, 0)  # another limit is another store


def test_the_first_that_is_left_out_is_known_with_its_side(tmp_path: Path) -> None:
    pairs = [Pair("5", "6"), Pair("5", "9 " * 51), Pair("5", ""), Pair("", "")]
    assert store_of(tmp_path, pairs).first_left_out == {"too long (target)": (1, 1), "blank": (2, 1)}


def test_pairs_that_were_seen_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.data.store.HASHES_AT_ONCE", 2)
    stores = [
        store_of(tmp_path / "a", [Pair("5", "6"), Pair("5 6", "7"), Pair("7", "8"), Pair("", "9")]),
        store_of(tmp_path / "b", [Pair("1", "2")]),
    ]
    seen, unseen = [Pair("7", "8"), Pair("7", "8"), Pair("1", "2")], [Pair("5", "6 7"), Pair("8", "7"), Pair("", "9")]
    assert count_duplicates([*seen, *unseen], stores) == 3
    assert count_duplicates(unseen, stores) == 0
    assert count_duplicates([], stores) == 0


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
        prepare_store(
            tmp_path / "stores",
            broken,
            [file],
            encode=encode_sides(numbers, numbers),
            identity={},
            limits=(SideLimit(9),) * 2,
        )
    assert list((tmp_path / "stores").iterdir()) == []


def test_every_sentence_once_an_epoch_within_the_budget(tmp_path: Path) -> None:
    pairs = random_pairs(500)
    plan = bucket_pairs(store_of(tmp_path, pairs), tokens_per_batch=200, seed=3)
    epoch = plan.epoch(0)
    assert sorted(np.concatenate(epoch).tolist()) == list(range(500))
    for rows in epoch:
        batch = plan.load(rows)
        assert max(batch.source_BS.numel(), batch.write_BT.numel()) <= 200
    again, other = plan.epoch(0), plan.epoch(1)
    assert all(np.array_equal(a, b) for a, b in zip(epoch, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(epoch, other, strict=False))


def test_each_side_of_an_even_batch_has_its_own_width(tmp_path: Path) -> None:
    """Sources of 200 to 1,000 tokens, targets of 1 to 40: a decoder must not take a step for each source token."""
    dice = np.random.default_rng(7)
    lengths = zip(dice.integers(200, 1000, 900), dice.geometric(0.2, 900).clip(1, 40), strict=True)
    pairs = [Pair("5 " * source, "6 " * target) for source, target in lengths]
    store = store_of(tmp_path, pairs, max_length=1000)
    plan = bucket_pairs(store, tokens_per_batch=8192, seed=3, multiple=8, longest=1000)
    epoch = plan.epoch(0)
    assert sorted(np.concatenate(epoch).tolist()) == list(range(900))
    batches = [plan.load(rows) for rows in epoch]
    widths = {(batch.source_BS.shape[1], batch.read_BT.shape[1]) for batch in batches}
    assert {source for source, _ in widths} <= {224, 256, 320, 384, 448, 512, 640, 768, 896, 1000}
    assert {target for _, target in widths} <= {8, 16, 32, 64}
    assert all(len(batch.source_BS) == 8192 // batch.source_BS.shape[1] for batch in batches)
    steps = sum(batch.read_BT.shape[1] * len(rows) for rows, batch in zip(epoch, batches, strict=True))
    assert steps < 16 * 900


@pytest.mark.parametrize(
    ("longest", "widths"),
    [((7, 8), (8, 8)), ((17, 9), (24, 16)), ((5, 64), (8, 64)), ((65, 33), (80, 64)), ((1001, 3), (1008, 8))],
)
def test_even_batches_come_in_few_sizes(longest: tuple[int, int], widths: tuple[int, int]) -> None:
    sizes = BatchSizes(4096, 8, 1008)
    assert sizes.round_both(*longest) == widths
    assert sizes.round_both(*reversed(longest)) == (*reversed(widths),)
    assert len({int(sizes.round_width(width)) for width in range(1, 1009)}) == 24


def test_batches_vary_with_the_epoch(tmp_path: Path) -> None:
    plan = bucket_pairs(store_of(tmp_path, random_pairs(500)), tokens_per_batch=200, seed=3)
    kept = [{frozenset(rows.tolist()) for rows in plan.epoch(number)} for number in range(8)]
    again = [len(one & other) / len(one) for one, other in itertools.combinations(kept, 2)]
    assert sum(again) / len(again) < 0.25


def test_weights_say_how_often_a_corpus_is_read(tmp_path: Path) -> None:
    sizes, weights = (40, 31, 20, 3), (1.0, 2.0, 0.5, 0.01)
    stores = [store_of(tmp_path / str(size), random_pairs(size)) for size in sizes]
    plan = bucket_pairs(*stores, tokens_per_batch=200, seed=3, weights=weights)
    halves = []
    for number in range(3):
        counts = np.bincount(np.concatenate(plan.epoch(number)), minlength=94)
        assert (counts[:40] == 1).all()
        assert (counts[40:71] == 2).all()
        assert (counts[71:91].max(), counts[71:91].sum()) == (1, 10)
        assert counts[91:].sum() == 1  # a corpus is never forgotten
        halves.append(tuple(counts[71:91]))
        again = bucket_pairs(*stores, tokens_per_batch=200, seed=3, weights=weights).epoch(number)
        assert all(np.array_equal(*rows) for rows in zip(plan.epoch(number), again, strict=True))
    assert len(set(halves)) == 3


def test_rows_count_through_all_stores(tmp_path: Path) -> None:
    rows = [[Pair("5", "6"), Pair("6", "7")], [Pair("", "")], [Pair("8 9", "9")]]
    stores = [store_of(tmp_path / str(index), pairs) for index, pairs in enumerate(rows)]
    plan = bucket_pairs(*stores, tokens_per_batch=100, seed=1)
    assert plan.load([2, 0, 1]).source_BS.tolist() == [[8, 9, END], [5, END, PAD], [6, END, PAD]]


@given(st.lists(st.integers(1, 10), min_size=1), st.integers(10, 60))
def test_runs_are_as_long_as_can_be(widths: list[int], budget: int) -> None:
    found = list(split_by_budget(np.array(widths), budget))
    assert [at for run in found for at in range(len(widths))[run]] == list(range(len(widths)))
    for run in found:
        assert (run.stop - run.start) * max(widths[run]) <= budget
        one_more = widths[run.start : run.stop + 1]
        assert len(one_more) * max(one_more) > budget or run.stop == len(widths)


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 10))), st.integers(1, 300))
def test_groups_are_of_like_sizes_and_as_large_as_can_be(sizes: list[tuple[int, int]], budget: int) -> None:
    def cost(rows: list[int]) -> int:
        return len(rows) * max(sizes[row][0] for row in rows) * max(sizes[row][1] for row in rows)

    found = list(group_by_length(sizes, budget))
    assert list(itertools.chain.from_iterable(found)) == sorted(range(len(sizes)), key=sizes.__getitem__)
    assert all(cost(rows) <= budget or len(rows) == 1 for rows in found)
    assert all(cost([*rows, following[0]]) > budget for rows, following in itertools.pairwise(found))


def test_groups_by_hand() -> None:
    sizes = [(3,), (1,), (2,), (1,), (9,)]
    assert list(group_by_length(sizes, 6)) == [[1, 3, 2], [0], [4]]
    assert list(group_by_length(sizes, 6, counts=[1, 2, 2, 1, 1])) == [[1, 3], [2], [0], [4]]
    assert list(group_by_length(sizes, 2, cost=lambda count, longest: count)) == [[1, 3], [2, 0], [4]]
    assert list(group_by_length([], 6)) == []


def test_what_a_decoder_reads_by_hand() -> None:
    assert decoder_input([[7], [], [8, 9]]).tolist() == [[START, 7, PAD], [START, PAD, PAD], [START, 8, 9]]


def test_a_batch_by_hand(tmp_path: Path) -> None:
    plan = bucket_pairs(store_of(tmp_path, [Pair("5 6", "7"), Pair("8", "9 10")]), tokens_per_batch=100, seed=1)
    batch = plan.load([0, 1])
    assert batch.source_BS.tolist() == [[5, 6, END], [8, END, PAD]]
    assert batch.source_length_B.tolist() == [3, 2]
    assert batch.read_BT.tolist() == [[START, 7, PAD], [START, 9, 10]]
    assert batch.write_BT.tolist() == [[7, END, PAD], [9, 10, END]]
    assert batch.num_items == 5
    assert batch.to(torch.device("cpu")).read_BT.dtype == torch.long


def test_mistakes_are_named(tmp_path: Path) -> None:
    store = store_of(tmp_path, [Pair("5 6 7", "8")])
    with pytest.raises(
        UserError, match=r"tokens_per_batch: 3 given, but one sentence has 4 tokens; allowed: 4 or more"
    ):
        bucket_pairs(store, tokens_per_batch=3, seed=1)
    with pytest.raises(UserError, match=r"data: nothing is left to train on"):
        bucket_pairs(store_of(tmp_path, [Pair("", "8")]), tokens_per_batch=3, seed=1)


@pytest.mark.skipif(not (DATA / "multi30k").exists(), reason=f"needs Multi30k at {DATA} (set SACCADE_DATA)")
def test_multi30k_batches_are_mostly_real(tmp_path: Path) -> None:
    source, target = (str(DATA / "multi30k" / f"train.lc.norm.tok.{language}.gz") for language in ("en", "de"))
    corpus = Corpus(source, target)
    tokenizer = train_tokenizer("words", (text for pair in corpus.pairs() for text in pair), 6000)
    encode = encode_sides(tokenizer.encode, tokenizer.encode)
    store = prepare_store(
        tmp_path, corpus.pairs, corpus.files(), encode=encode, identity={}, limits=(SideLimit(100),) * 2
    )
    assert len(store) == 29_000
    assert bucket_pairs(store, tokens_per_batch=2048, seed=1).real_share() >= 0.975
    assert bucket_pairs(store, tokens_per_batch=4096, seed=1).real_share() >= 0.965
