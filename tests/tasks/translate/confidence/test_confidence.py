"""Confidence: fitted at the end of a training, told of words and outputs, judged on a test set."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from saccade import manifest
from saccade.api import train
from saccade.cli import app
from saccade.data.text.corpus import Pair
from saccade.errors import UserError
from saccade.inspection.calibration import MonotoneMap, WordMap
from saccade.inspection.insight import TextSide
from saccade.runs.load import load_run
from saccade.serving.models import load_runs
from saccade.tasks.translate.confidence.confidence import Confidence, read_words
from saccade.tasks.translate.confidence.judge import fit, judge, measure
from saccade.tasks.translate.result import TranslationResult, WordConfidence
from servers import serving

WORDS = ["a", "b", "c", "d", "e", "f", "g"]
PAIRS = [Pair(f"{x} {y} {z}", f"{z} {y} {x}") for x in WORDS for y in WORDS for z in WORDS]
RUNNER = CliRunner()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("confidence")
    for side, name in enumerate(("source", "target")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    sides = {name: str(folder / name) for name in ("source", "target")}
    content = {
        "task": "translate",
        "languages": {"source": "en", "target": "de"},
        "data": {"train": sides, "valid": {"count": 60}},
        "tokenizer": {"kind": "words"},
        "model": {"width": 16, "num_heads": 2, "hidden_width": 32, "num_layers": 1},
        "training": {"max_steps": 40, "validate_every": 40, "tokens_per_batch": 256, "warmup_steps": 5},
        "decoding": {"beam": 1, "min_length": 2},
    }
    train(content, folder=folder / "run", device="cpu", quiet=True)
    return folder / "run"


def result(words: list[str], p: list[float]) -> TranslationResult:
    return TranslationResult(" ".join(words), 0.0, words, [*np.log(p).tolist(), -0.1])


def test_words_have_the_product_of_their_pieces_and_given_ones_are_certain() -> None:
    found = TranslationResult("ab c", 0.0, ["▁a", "b", "▁c"], [np.log(0.5), np.log(0.4), 0.0, -0.7])
    side = TextSide.of(found.text, [*found.pieces, "</s>"], lambda piece: piece.startswith("▁"))
    words, p, is_given = read_words(found, side)
    assert words == ["ab", "c"]
    assert p.tolist() == pytest.approx([0.2, 1.0])
    assert is_given == [False, True]
    maps = Confidence(WordMap(1.0, -1.0), MonotoneMap((0.0, 1.0), (0.0, 0.5)), 1, 1)
    told = maps.tell(found, side).confidence
    assert told is not None
    lowered = 1 / (1 + np.exp(1 - np.log(0.25)))  # σ(logit(0.2) - 1)
    assert told.words == [("ab", pytest.approx(lowered, abs=1e-4)), ("c", 1.0)]
    assert told.sentence == pytest.approx((lowered + 1) / 4, abs=1e-4)


def test_what_is_fitted_is_nearer_to_the_share_that_is_right(run: Path) -> None:
    """A model that says 0.9 of words of which four in ten are right."""
    translator, chance = load_run(run), np.random.default_rng(7)
    rows = [chance.choice(WORDS, 11).tolist() for _ in range(400)]
    references = [" ".join(word if chance.random() < 0.4 else "zz" for word in row) for row in rows]
    results = [result(row, chance.uniform(0.85, 0.95, 11).tolist()) for row in rows]
    judged = judge(translator, results, references)
    figures = measure(judged, fit(judged)).figures()
    assert figures["calibration_error_words_before"] > 0.4
    assert figures["calibration_error_words"] < 0.02
    assert figures["calibration_error_sentences"] < 0.1 < figures["calibration_error_sentences_before"]


def test_training_fits_it_and_a_finished_run_gets_it_later(run: Path, tmp_path: Path) -> None:
    stored = json.loads((run / "confidence.json").read_text("utf-8"))
    assert stored["num_sentences"] == 60
    assert manifest.find_changed(run) == []
    assert "Confidence" in (run / "report.html").read_text("utf-8")
    again = tmp_path / "again"
    shutil.copytree(run, again)
    (again / "confidence.json").unlink()
    with pytest.raises(UserError, match="confidence: none was fitted"):
        load_run(again).predict(["a b c"], confidence=True)
    assert RUNNER.invoke(app, ["train", str(again / "config.yaml"), "--run", str(again)]).exit_code == 0
    assert json.loads((again / "confidence.json").read_text("utf-8")) == stored
    (again / "confidence.json").write_text("{}", "utf-8")
    with pytest.raises(UserError, match=r"confidence\.json is damaged"):
        load_run(again)
    with pytest.raises(UserError, match="confidence: none was fitted"):
        load_run(run, run).predict(["a b c"], confidence=True)


def test_every_way_to_ask_tells_the_same(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a b c\n\n", encoding="utf-8")
    text, blank = load_run(run).predict(["a b c", ""], confidence=True)
    assert text.confidence is not None
    assert [word for word, _ in text.confidence.words] == text.text.split()
    assert all(0 < p < 1 for _, p in text.confidence.words)
    assert blank.confidence is None
    assert load_run(run).predict(["a b c"])[0].confidence is None
    command = ["predict", str(run), "--input", str(tmp_path / "in.txt"), "--json", "--confidence"]
    shown = json.loads(RUNNER.invoke(app, command).stdout.splitlines()[0])["confidence"]
    assert shown == {"sentence": text.confidence.sentence, "words": [list(pair) for pair in text.confidence.words]}
    lines = RUNNER.invoke(app, [one for one in command if one != "--json"]).stdout.splitlines()
    assert lines == [text.text, text.confidence.line(), ""]
    assert WordConfidence(0.804, [("ein", 0.9999), ("{0}", 1.0)]).line() == "80% sure: ein >99%, {0} 100%"
    with serving(load_runs([run])) as served:
        for body in ({}, {"alignment": True}):
            answer = served.client.post("/v1/translate", json={"q": "a b c", "confidence": True, **body}).json()
            assert answer["translations"][0]["sentences"][0]["confidence"] == shown
    (kept,) = load_run(run).predict(["a {0} b"], confidence=True, placeholders="keep")
    assert kept.confidence is not None
    assert dict(kept.confidence.words)["{0}"] == 1.0


def test_evaluating_tells_the_errors(run: Path, tmp_path: Path) -> None:
    for side, name in enumerate(("s", "t")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS[:40]), encoding="utf-8")
    files = [str(tmp_path / "s"), str(tmp_path / "t")]
    scores = json.loads(RUNNER.invoke(app, ["evaluate", str(run), *files, "--json", "--confidence"]).stdout)
    assert {name for name in scores if name.startswith("calibration")} == {
        f"calibration_error_{name}{when}" for name in ("words", "sentences") for when in ("", "_before")
    }
    assert "calibration error of words" in RUNNER.invoke(app, ["evaluate", str(run), *files, "--confidence"]).stdout
    assert "calibration" not in RUNNER.invoke(app, ["evaluate", str(run), *files]).stdout
