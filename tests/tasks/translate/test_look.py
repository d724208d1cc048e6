"""Looking through predictors: what was seen is what was used, alone or in a batch; given outputs are read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from runs import make_run
from saccade.cli import app
from saccade.errors import UserError
from saccade.inspection.align import chosen_head
from saccade.inspection.insight import Head
from saccade.runs.load import load_run

TEXTS = ["a b c", "d", "e f g h a", ""]
RNN = {"kind": "rnn", "width": 14, "embedding_width": 10, "attention": "luong"}
RUNNER = CliRunner()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(7)
    return make_run(tmp_path_factory.mktemp("look") / "run")


@pytest.mark.parametrize("model", ["transformer", "rnn"])
def test_what_is_seen_is_what_predict_shows(model: str, run: Path, tmp_path: Path) -> None:
    translator = load_run(run if model == "transformer" else make_run(tmp_path / "rnn", model=RNN))
    for seen, shown in zip(translator.look(TEXTS), translator.predict(TEXTS, attention=True), strict=True):
        assert seen.answer.text == shown.text
        if shown.attention is not None:
            torch.testing.assert_close(seen.map("cross").weight_LHTS[-1].mean(0), shown.attention)
            assert seen.sides["source"].pieces == shown.source_pieces


def test_a_batch_changes_nothing_and_blank_texts_have_nothing(run: Path) -> None:
    translator = load_run(run)
    together = translator.look(TEXTS, kinds=("cross", "encoder", "decoder"), norms=True)
    for text, seen in zip(TEXTS[:3], together, strict=False):
        (alone,) = translator.look([text], kinds=("cross", "encoder", "decoder"), norms=True)
        for kind, found in alone.maps.items():
            torch.testing.assert_close(seen.maps[kind].weight_LHTS, found.weight_LHTS)
            torch.testing.assert_close(seen.maps[kind].norm_LHTS, found.norm_LHTS)
    assert together[3].maps == {}
    with pytest.raises(UserError, match="no attention to look at"):
        together[3].map()


def test_given_outputs_are_read_and_scored(run: Path) -> None:
    translator = load_run(run)
    own = translator.look(TEXTS[:3], width=1)
    texts = [seen.answer.text for seen in own]
    given = translator.look(TEXTS[:3], targets=texts)
    for before, after in zip(own, given, strict=True):
        if before.answer.ended:
            assert after.answer.log_probabilities == pytest.approx(before.answer.log_probabilities, abs=1e-5)
            assert after.answer.score == pytest.approx(before.answer.score, abs=1e-5)
            torch.testing.assert_close(after.map().weight_LHTS, before.map().weight_LHTS)
    assert any(seen.answer.ended for seen in own)
    with pytest.raises(UserError, match="targets: there must be one for each text"):
        translator.look(TEXTS, targets=["a"])


def test_the_head_that_aligns_is_kept_with_the_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    assert load_run(folder).aligning is None
    chosen_head.save(folder, Head(1, 0, shift=1), aer=21.5)
    translator = load_run(folder)
    assert translator.aligning == Head(1, 0, 1)
    (seen,) = translator.look(["a b c"], targets=["c b"])
    weight_TS = seen.map("cross").weight_LHTS[1, 0]
    torch.testing.assert_close(seen.alignment()[:2], weight_TS[1:])
    (folder / chosen_head.NAME).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=r"aligning\.json is damaged"):
        load_run(folder)


def test_an_ensemble_is_refused(run: Path) -> None:
    with pytest.raises(UserError, match="an ensemble has no attention of its own"):
        load_run(run, run).look(["a"])


def test_json_has_every_layer_and_head(run: Path) -> None:
    result = RUNNER.invoke(app, ["look", str(run), "a b c", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["task"] == "translate"
    assert found["sides"]["source"]["words"] == ["a", "b", "c", "</s>"]
    weight_LHTS = torch.tensor(found["attention"]["cross"]["weights"])
    assert weight_LHTS.shape[:2] == (2, 2)
    assert weight_LHTS.shape[3] == 4
    assert len(found["answer"]["log_probabilities"]) == weight_LHTS.shape[2]
    assert found["aligning"] is None


def test_the_command_draws(run: Path, tmp_path: Path) -> None:
    picture = tmp_path / "look.png"
    result = RUNNER.invoke(app, ["look", str(run), "a b c", "--layer", "0", "--head", "1", "--draw", str(picture)])
    assert result.exit_code == 0, result.output
    assert picture.stat().st_size > 1000
    assert "</s>" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "text: none given"),
        (["a", "--layer", "2"], "layer: 2 given; allowed: 0 to 1"),
        (["a", "--head", "5"], "head: 5 given; allowed: 0 to 1"),
        (["a", "--kind", "self"], "kinds: 'self' given"),
        (["a", "--draw", "a.bmp"], "a picture ends in"),
        (["a " * 1100], "line 1 has 1,100 tokens; at most 1,024 can be looked at"),
        (["--input", os.devnull], f"{os.devnull}: it is empty; there is nothing to look at"),
    ],
)
def test_mistakes(run: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RUNNER.invoke(app, ["look", str(run), *arguments], catch_exceptions=False)
