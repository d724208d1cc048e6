"""Texts as ids: windows hold what was said before in the same dialogue, and every text is encoded once."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.data.labels.labelled import Text
from saccade.data.labels.windows import NO_LABEL, OTHER, SAME, UNKNOWN_SPEAKER, EncodedTexts, encode_texts
from saccade.data.text.tokenizer import END

SPOKEN = [("1", "A"), ("1", "B"), ("1", "A"), ("2", "A"), ("2", ""), ("", "A"), ("", "A")]
TEXTS = [Text("w" * (row + 1), "yes" if row % 2 else "no", *spoken) for row, spoken in enumerate(SPOKEN)]


def encoded(context: int, max_length: int = 99) -> EncodedTexts:
    """A text's ids are its row, as often as it is long."""
    return encode_texts(
        TEXTS, lambda text: [10 + len(text)] * len(text), ["no", "yes"], context=context, max_length=max_length
    )


def test_without_context_every_text_stands_alone() -> None:
    texts = encoded(0)
    assert texts.runs() == [range(row, row + 1) for row in range(7)]
    batch = texts.batch(texts.runs()[1:3])
    assert batch.ids_US.tolist() == [[12, 12, 0], [13, 13, 13]]
    assert batch.length_U.tolist() == [2, 3]
    assert batch.window_BW.tolist() == [[0], [1]]
    assert batch.label_B.tolist() == [1, 0]
    assert batch.num_items == 2


def test_windows_end_with_the_text_and_begin_in_its_dialogue() -> None:
    texts = encoded(1)
    assert texts.runs(2) == [range(2), range(2, 3), range(3, 5), range(5, 6), range(6, 7)]
    batch = texts.batch([range(2, 3), range(3, 5)])
    assert batch.ids_US[:, 0].tolist() == [12, 13, 14, 15]  # the text before the first run is read, not judged
    assert batch.window_BW.tolist() == [[0, 1], [2, 0], [2, 3]]
    assert batch.window_length_B.tolist() == [2, 1, 2]
    assert batch.speaker_BW[0].tolist() == [OTHER, SAME]
    assert batch.speaker_BW[1, 0] == SAME
    assert batch.speaker_BW[2].tolist() == [UNKNOWN_SPEAKER, UNKNOWN_SPEAKER]
    assert batch.label_B.tolist() == [0, 1, 0]


@pytest.mark.parametrize("context", [1, 2, 5])
@pytest.mark.parametrize("longest", [1, 2, 3])
def test_however_runs_are_cut_the_windows_are_the_same(context: int, longest: int) -> None:
    texts = encoded(context)
    runs = texts.runs(longest)
    assert [row for run in runs for row in run] == list(range(7))
    seen = []
    for start in range(0, len(runs), 2):
        batch = texts.batch(runs[start : start + 2])
        for window, length in zip(batch.window_BW.tolist(), batch.window_length_B.tolist(), strict=True):
            seen.append([int(batch.ids_US[index, 0]) - 11 for index in window[:length]])
    expected = [
        [
            other
            for other in range(max(0, row - context), row + 1)
            if other == row or (SPOKEN[other][0] == SPOKEN[row][0] != "")
        ]
        for row in range(7)
    ]
    assert seen == expected


def test_long_texts_are_cut_blank_ones_end_and_unknown_labels_are_marked() -> None:
    texts = encode_texts([Text("", "maybe"), Text("abc", "no")], lambda text: [5] * len(text), ["no"], max_length=2)
    assert texts.num_cut == 1
    assert texts.label.tolist() == [NO_LABEL, 0]
    assert np.diff(texts.start).tolist() == [1, 2]
    assert texts.token_N.tolist() == [END, 5, 5]
