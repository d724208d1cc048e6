"""The demo's own parts: its data, and which sentences are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.data.text.corpus import Pair
from saccade.datasets.made import phrasebook
from saccade.errors import UserError
from saccade.lab import demo
from saccade.lab.phrasebook import grammar


def test_the_shown_sentences_fit_and_differ() -> None:
    (pairs,) = grammar.split(1000, seed=2)
    shown = demo.choose_examples(pairs, 80)
    assert len(set(shown)) == 3
    assert any(word in shown[0].source for word in (" not ", " never ", " no longer "))
    assert shown[2].source.endswith("?")
    assert demo.choose_examples([Pair("They do not see the elephant.", "Ils ne voient pas l'éléphant.")], 20) == []


def test_the_phrasebook_is_written_once(tmp_path: Path) -> None:
    phrasebook.write_phrasebook(tmp_path, sentences=50, seed=1)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["test.en", "test.fr", "train.en", "train.fr", "valid.en", "valid.fr"]
    assert len((tmp_path / "test.en").read_text("utf-8").splitlines()) == phrasebook.NUM_TEST
    written = (tmp_path / "train.fr").stat().st_mtime_ns
    phrasebook.write_phrasebook(tmp_path, sentences=50, seed=1)
    assert (tmp_path / "train.fr").stat().st_mtime_ns == written
    with pytest.raises(UserError, match=r"holds 50 sentences, 70 are wanted"):
        phrasebook.write_phrasebook(tmp_path, sentences=70, seed=1)
