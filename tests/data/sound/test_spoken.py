"""Lists of sounds with texts and times, and where attention to characters puts the words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.data.sound.mel import Mel, log_mel
from saccade.data.sound.spoken import is_monotone, read_spoken, word_times, words_of
from saccade.data.sound.vocoder import synthesize
from saccade.errors import UserError


def test_lists_have_texts_and_perhaps_times_and_voices(tmp_path: Path) -> None:
    path = tmp_path / "list.tsv"
    path.write_text("a_ann_1.wav\tone  two\t0 0.5 0.6 1\nb_bob_2.wav 0.1 c_bob_3.wav\tthree four\n", encoding="utf-8")
    first, second = read_spoken(path)
    assert (first.text, first.times) == ("one two", ((0.0, 0.5), (0.6, 1.0)))
    assert (second.sound, second.times) == ("b_bob_2.wav 0.1 c_bob_3.wav", None)
    path.write_text(f"sound\ttext\ttimes\n{path.read_text('utf-8')}", encoding="utf-8")
    assert read_spoken(path) == [first, second]
    assert [line.text for line in read_spoken(path, "_([a-z]+)_")] == ["ann: one two", "bob: three four"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.wav", "line 1: 'a.wav' given; allowed: sound TAB text, or sound TAB text TAB times"),
        ("a.wav\tone\t0", "a start and an end for each of 1 words, in order"),
        ("a.wav\tone\t0.5 0.1", "a start and an end for each of 1 words, in order"),
        ("a.wav\tone\t-1 1", "a start and an end for each of 1 words, in order"),
        ("a.wav\tone\t0 x", "they must be numbers, in seconds"),
        ("", "given; allowed: sound TAB text"),
    ],
)
def test_wrong_lines_are_named(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "list.tsv").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"list\.tsv") as refused:
        read_spoken(tmp_path / "list.tsv")
    assert message in str(refused.value)


def test_words_behind_a_voice_are_said() -> None:
    assert [tuple(word) for word in words_of("ann: one two")] == [("one", 5, 8), ("two", 9, 12)]
    assert [word.text for word in words_of("one two")] == ["one", "two"]


def test_times_of_words_by_hand() -> None:
    """`ab c`: steps read a, b, the space, b again, and never c."""
    weights = torch.eye(4)[[0, 1, 2, 1]]
    assert word_times(weights, words_of("ab c"), 0.5) == [(0.0, 2.0), None]
    assert word_times(torch.eye(7), words_of("ab cdef"), 0.05) == [(0.0, 0.1), (0.15, 0.35)]  # not 0.35000000000000003
    assert not is_monotone(weights)
    assert is_monotone(weights[:3])


def test_a_sound_comes_back_from_its_frames() -> None:
    """Two tones one after the other, within a tenth of the range of their frames."""
    mel, time = Mel(4000, 24, 0.032, 0.008), np.arange(1600) / 4000
    tones = np.concatenate([np.sin(2 * np.pi * hertz * time) / 2 for hertz in (500, 1300)]).astype(np.float32)
    wanted = log_mel(tones, mel).astype(np.float32)
    samples = synthesize(wanted, mel)
    found = log_mel(samples, mel).astype(np.float32)[: len(wanted)]
    wanted = wanted[: len(found)]
    loud = wanted > wanted.max() - 5
    assert abs(len(samples) - len(tones)) < mel.step * 2
    assert np.abs(samples).max() == pytest.approx(0.8, abs=1e-4)
    error = (found - found.max()) - (wanted - wanted.max())
    assert np.abs(error[loud]).mean() < 0.5
    np.testing.assert_array_equal(samples, synthesize(log_mel(tones, mel).astype(np.float32), mel))
    assert len(synthesize(wanted[:0], mel)) == 0
