"""A store of frames: each file once, sources by reference, found again, whole or not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from saccade.data.sound.mel import Mel, join_frames, read_frames
from saccade.data.sound.recordings import find_named_files, pad_frames, prepare_recordings
from saccade.data.store import SideLimit, encode_sides, prepare_store
from saccade.data.text.corpus import Pair
from saccade.errors import UserError
from sounds import tone, write_wav

SMALL = Mel(rate=8000, num_mels=11)


def place(row: int) -> str:
    return f"list.tsv:{row + 1}"


def files(folder: Path) -> dict[str, Path]:
    sounds = {"a.wav": tone(300.0, 0.13), "b.wav": tone(900.0, 0.07), "c.wav": tone(2000.0, 0.19)}
    return {name: write_wav(folder / name, samples) for name, samples in sounds.items()}


def test_sources_are_references_to_files_that_are_made_once(tmp_path: Path) -> None:
    found = prepare_recordings(tmp_path / "store", files(tmp_path), SMALL)
    assert found.frames.steps.dtype == np.float16
    assert found.encode("b.wav 0.25 a.wav 0.004 b.wav") == [1, -25, 0, 1]
    alone = [read_frames(tmp_path / name, SMALL) for name in ("b.wav", "a.wav")]
    np.testing.assert_array_equal(found.load([1, -25, 0, 1]), join_frames([alone[0], 25, alone[1], alone[0]], 11))
    assert found.length([1, -25, 0, 1]) == len(found.load([1, -25, 0, 1])) == 8 + 25 + 14 + 8


def test_a_store_is_found_again_until_a_file_or_setting_changes(tmp_path: Path) -> None:
    root, named = tmp_path / "store", files(tmp_path)
    first = prepare_recordings(root, named, SMALL)
    made = (root / first.key / "frames.values").stat().st_mtime_ns
    assert prepare_recordings(root, named, SMALL).key == first.key
    assert (root / first.key / "frames.values").stat().st_mtime_ns == made
    assert prepare_recordings(root, named, SMALL._replace(num_mels=13)).key != first.key
    write_wav(tmp_path / "a.wav", tone(310.0, 0.13))
    assert prepare_recordings(root, named, SMALL).key != first.key
    write_wav(tmp_path / "c.wav", np.zeros(0, np.float32))
    with pytest.raises(UserError, match=r"c\.wav: there is no sound in it"):
        prepare_recordings(root, named, SMALL)
    assert not list(root.glob(".draft-*"))


def test_pairs_are_measured_in_frames(tmp_path: Path) -> None:
    found = prepare_recordings(tmp_path / "store", files(tmp_path), SMALL)
    pairs = [Pair("a.wav 0.10 b.wav", "x y"), Pair("c.wav 1.00 a.wav", "x"), Pair("b.wav", "y"), Pair("", "y")]
    store = prepare_store(
        tmp_path / "store",
        lambda: pairs,
        [],
        encode=encode_sides(found.encode, lambda text: list(range(len(text.split())))),
        identity={"frames": found.key},
        limits=(SideLimit(50),) * 2,
        measure=found.length,
    )
    assert store.left_out == {"blank": 1, "too long (source)": 1, "too long (target)": 0}
    assert store.first_left_out == {"too long (source)": (1, 0), "blank": (3, 0)}
    assert found.all_lengths(store.source).tolist() == [14 + 10 + 8, 8]
    assert [found.length(store.source[row]) for row in range(2)] == [32, 8]


def test_files_are_named_once_and_looked_for(tmp_path: Path) -> None:
    files(tmp_path)
    lines = ["a.wav 0.1 b.wav", "b.wav", "a.wav c.wav"]
    assert list(find_named_files(lines, tmp_path, place)) == ["a.wav", "b.wav", "c.wav"]
    with pytest.raises(UserError, match=r"list\.tsv:2: there is no file at .*d\.wav"):
        find_named_files(["a.wav", "b.wav d.wav"], tmp_path, place)
    with pytest.raises(UserError, match=r"list\.tsv:1: 'seven' is neither a sound file"):
        find_named_files(["seven"], tmp_path, place)


def test_padding_is_zero() -> None:
    frames_BSF, length_B = pad_frames([np.ones((3, 2), np.float32), np.ones((5, 2), np.float32)])
    assert length_B.tolist() == [3, 5]
    assert frames_BSF.shape == (2, 5, 2)
    assert frames_BSF.sum(2).tolist() == [[2, 2, 2, 0, 0], [2] * 5]
