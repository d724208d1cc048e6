"""Documents packed end to end: every token is written once, after the one before it, and rows can go on."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.data.stream import FollowingWindows, ShuffledWindows, cut_window, make_stream, overlap_rows
from saccade.data.text.documents import read_documents, split_end
from saccade.data.text.tokenizer import END, START
from saccade.errors import UserError

IDS = np.array([5, 6, END, 7, END, 8, 9, 10, 11, END, 12, 13, END], np.int32)  # four documents, 13 places


def test_a_stream_counts_each_end_as_a_word_and_a_character() -> None:
    stream = make_stream(
        ["ab c", "d"], lambda text: [4 + ord(letter) - ord("a") for letter in text if letter != " "], "x"
    )
    assert stream.ids.tolist() == [4, 5, 6, END, 7, END]
    assert stream[1:] == (2, 5, 7)
    with pytest.raises(UserError, match=r"data\.train: there is no text in it"):
        make_stream([], lambda _: [4], "data.train")


def test_what_is_read_is_what_was_written_before_and_a_document_begins_with_s() -> None:
    window = cut_window(IDS, np.array([0, 8]), 7)
    assert window.read_BT.tolist() == [[START, 5, 6, START, 7, START, 8], [10, 11, START, 12, 13, START, 5]]
    assert window.write_BT.tolist() == [[5, 6, END, 7, END, 8, 9], [11, END, 12, 13, END, 5, 6]]
    assert window.num_items == 14


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_shuffled_windows_write_every_place_and_few_twice(epoch: int) -> None:
    ids = np.arange(4, 105, dtype=np.int32)
    plan = ShuffledWindows(ids, steps=7, batch_size=4, seed=3)
    batches = [plan.load(rows) for rows in plan.epoch(epoch)]
    assert all(batch.write_BT.shape[1] == 7 for batch in batches)
    written = torch.cat([batch.write_BT.flatten() for batch in batches])
    assert set(written.tolist()) == set(ids.tolist())
    assert len(written) < len(ids) + 7
    again = ShuffledWindows(ids, steps=7, batch_size=4, seed=3).epoch(epoch)
    assert all(np.array_equal(one, other) for one, other in zip(plan.epoch(epoch), again, strict=True))
    assert not np.array_equal(np.sort(plan.epoch(0)[0]), np.sort(plan.epoch(1)[0]))


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_following_windows_go_on_where_the_last_ended(epoch: int) -> None:
    ids = np.arange(4, 105, dtype=np.int32)
    plan = FollowingWindows(ids, steps=7, batch_size=3, seed=3)
    batches = [plan.load(window) for window in plan.epoch(epoch)]
    for before, after in itertools.pairwise(batches):
        assert torch.equal(after.read_BT[:, 0], before.write_BT[:, -1])
        assert int(after.place) == 1 - int(before.place)
    assert [bool(batch.is_first) for batch in batches] == [True, *[False] * (len(batches) - 1)]
    assert set(torch.cat([batch.write_BT.flatten() for batch in batches]).tolist()) == set(ids.tolist())


@pytest.mark.parametrize(
    ("length", "steps", "overlap"), [(3, 7, 0.5), (7, 7, 0.5), (50, 7, 0.0), (50, 7, 0.6), (50, 7, 0.99)]
)
def test_overlapping_rows_score_every_place_once(length: int, steps: int, overlap: float) -> None:
    rows = list(overlap_rows(length, steps, overlap))
    scored = [place for _, last, first in rows for place in range(first, last)]
    assert scored == list(range(length))
    assert all(0 <= first <= begin and last - first == min(steps, length) for first, last, begin in rows)
    least = min((begin - first for first, _, begin in rows[1:]), default=steps)
    assert least >= int(overlap * steps)  # so much was read before the first that is scored


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_bytes("\ufeffone  two\r\n\n \nthree\nfour\u0301\n\n".encode())
    return tmp_path / "a.txt"


def test_documents_are_lines_paragraphs_or_files(file: Path) -> None:
    assert [*read_documents([file], "lines")] == ["one two", "three", "fouŕ"]
    assert [*read_documents([file], "paragraphs")] == ["one  two\n", "three\nfouŕ\n"]
    assert [*read_documents([file, file], "files")] == ["one  two\n\n \nthree\nfouŕ\n\n"] * 2


def test_the_end_is_held_out() -> None:
    assert split_end(list("abcd"), share=0.25, count=None) == (["a", "b", "c"], ["d"])
    assert split_end(list("abcd"), share=None, count=3) == (["a"], ["b", "c", "d"])
    assert split_end(["a\nb\nc\nd\n"], share=0.5, count=None) == (["a\nb\n"], ["c\nd\n"])
    with pytest.raises(UserError, match=r"data\.valid: 4 given; data\.train has 4, and some must be left"):
        split_end(list("abcd"), share=None, count=4)
