"""The demo's own parts: its data, and which sentences are shown."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from saccade.data.text.corpus import Pair
from saccade.datasets.made import phrasebook
from saccade.errors import UserError
from saccade.lab import demo
from saccade.lab.phrasebook import grammar
from saccade.runs.events import TrainingEvent


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


def test_an_alignment_is_drawn_once_while_the_model_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phrasebook.write_phrasebook(tmp_path / "data", sentences=50, seed=1)
    pairs = demo.read_pairs(tmp_path / "data", "valid")[: demo.LOOKED]
    drawn: list[Pair] = []

    def align(_: object, pair: Pair) -> tuple[list[str], list[str], torch.Tensor]:
        drawn.append(pair)
        queries, keys = pair.target.split(), pair.source.split()
        return queries, keys, torch.eye(len(queries), len(keys))

    monkeypatch.setattr(demo, "load_run", lambda folder: torch.rand(1))  # a network draws its first weights
    monkeypatch.setattr(demo, "translate", lambda translator, given: [(pair, pair.target) for pair in given])
    monkeypatch.setattr(demo, "alignment", align)
    console = Console(file=io.StringIO(), width=80)
    callback = demo.FirstAlignment(tmp_path, console)
    state = torch.get_rng_state()
    for kind, step, bleu in (("validation", 150, 14.0), ("step", 200, 90.0), ("validation", 300, 72.0)):
        figures = {"valid_bleu": bleu} if kind == "validation" else {"loss": 1.0}
        callback(TrainingEvent(kind, step, 1300, 0, figures, True, lambda: None))  # type: ignore[arg-type]
        assert bool(drawn) == (step == 300)
    callback(TrainingEvent("validation", 450, 1300, 0, {"valid_bleu": 90.0}, True, lambda: None))
    assert len(drawn) == 1
    assert drawn[0] in pairs
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "After 300 of 1,300 steps" in shown
    assert all(word in shown for word in drawn[0].target.split())
    assert torch.equal(torch.get_rng_state(), state)
