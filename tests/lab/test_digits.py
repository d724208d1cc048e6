"""Lists of digit strings: seeded, one speaker a string, no recording in two lists."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from saccade.data.sound.mel import parse_source
from saccade.data.sound.recordings import find_named_files
from saccade.data.text.corpus import Corpus, Pair
from saccade.errors import UserError
from saccade.lab import digits
from sounds import write_wav


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "recordings"
    for digit, speaker, number in itertools.product(range(10), ("ann", "bob"), range(11)):
        write_wav(folder / f"{digit}_{speaker}_{number}.wav", np.zeros(10, np.float32))
    write_wav(folder / "noise.wav", np.zeros(10, np.float32))
    return folder


def read(path: Path) -> list[Pair]:
    return list(Corpus(str(path)).pairs())


def test_lists_are_right(recordings: Path) -> None:
    out = recordings.parent
    written = digits.run(recordings, out, train=300, valid=200, test=100, seed=3)
    seen = {}
    for name, path in written.items():
        pairs = read(path)
        files = [[part for part in parse_source(pair.source) if isinstance(part, str)] for pair in pairs]
        assert {len(one) for one in files} == set(range(1 if name == "train" else 3, 8))
        named = [[Path(file).stem.split("_") for file in one] for one in files]
        assert all(len({speaker for _, speaker, _ in one}) == 1 for one in named)
        said = [" ".join(digits.WORDS[int(digit)] for digit, _, _ in one) for one in named]
        assert said == [pair.target for pair in pairs]
        seen[name] = {int(number) for one in named for _, _, number in one}
        assert find_named_files([pair.source for pair in pairs], out, str)  # from where the list lies
    assert seen == {"test": {0, 1, 2, 3, 4}, "valid": {5, 6, 7}, "train": {8, 9, 10}}
    assert [len(read(path)) for path in written.values()] == [300, 200, 100]
    silences = [
        part for pair in read(written["train"]) for part in parse_source(pair.source) if isinstance(part, float)
    ]
    assert 0 <= min(silences) < 0.03
    assert 0.27 < max(silences) <= 0.3


def test_lists_are_a_function_of_the_seed(recordings: Path, tmp_path: Path) -> None:
    first, same, other = (
        digits.run(recordings, tmp_path / name, train=20, valid=5, test=5, seed=seed)["train"].read_text("utf-8")
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == same
    assert first != other
    assert first.startswith("../data/recordings/")


def test_a_folder_without_recordings(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no folder at .*none"):
        digits.run(tmp_path / "none", tmp_path)
    with pytest.raises(UserError, match=r"no recording named <digit>_<speaker>_<number>\.wav with a number of 0 to 4"):
        digits.run(tmp_path, tmp_path)
