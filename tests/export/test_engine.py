"""CTranslate2 in the place of torch: the same outputs, scores and cuts, or a refusal that names the option."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import torch
from typer.testing import CliRunner

from exports import backwards, check_same, draw_sources
from runs import make_run
from saccade.cli import app
from saccade.data.batches import pad_sources
from saccade.decoding import BeamOptions, SamplingOptions, Stepper, search
from saccade.decoding.slices import ComputationEnded, supervise, tick_of
from saccade.errors import UserError
from saccade.export import engine as engines
from saccade.export.choice import TORCH, EngineChoice, EngineName
from saccade.export.ctranslate2 import CTranslate2Engine, write
from saccade.export.ctranslate2_search import CTranslate2Search
from saccade.runs.load import load
from saccade.serving.models import load_runs
from saccade.tasks.base import Portable
from servers import serving

CT2: dict[str, Any] = {"engine": "ctranslate2"}


def searcher(model: Portable, folder: Path) -> CTranslate2Search:
    write(model, folder, "float32")
    return CTranslate2Search(CTranslate2Engine(model, folder), cast(Stepper, model.network))


@pytest.fixture(scope="module")
def model() -> Portable:
    return backwards()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_length": 5},
        {"min_length": 6},
        {"no_repeat_ngram": 1, "max_length": 7},
        {"no_repeat_ngram": 2},
        {"writes_unknown": False},
        {"max_length_factor": 30.0, "max_rounds": 2, "no_repeat_ngram": 0},
        {"width": 4},
        {"width": 4, "length_penalty": 0.0},
        {"width": 3, "length_penalty": 2.0, "num_best": 3},
        {"width": 2, "length_penalty": 3.0, "max_length_factor": 5.0, "max_rounds": 2},
        {"width": 4, "max_length": 6, "num_best": 2},
        {"width": 5, "max_length_factor": 0.5, "max_length_extra": 1, "num_best": 4},
    ],
)
def test_every_option_does_what_it_does_here(tmp_path: Path, model: Portable, options: dict[str, Any]) -> None:
    given, chosen, engine = draw_sources(13, 12, random.Random(4)), BeamOptions(**options), searcher(model, tmp_path)
    for longest in (0, 3) if chosen.width == 1 else (0,):
        prefixes = [[4 + row % 7] * (row % 3) for row in range(len(given))] if longest else [[] for _ in given]
        ours = search(cast(Stepper, model.network), *pad_sources(given), chosen, prefixes)
        assert engine.refuse(chosen) is None
        check_same(ours, engine.search(given, prefixes, chosen, None))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"width": 2, "no_repeat_ngram": 2}, "no_repeat_ngram in a beam"),
        ({"width": 2, "min_length": 2}, "min_length in a beam"),
        ({"width": 2, "writes_unknown": False}, "writes_unknown in a beam"),
    ],
)
def test_what_it_cannot_honour_has_a_reason(
    tmp_path: Path, model: Portable, options: dict[str, Any], named: str
) -> None:
    engine = searcher(model, tmp_path)
    assert named in str(engine.refuse(BeamOptions(**options)))
    assert "sample" in str(engine.refuse(SamplingOptions()))
    with pytest.raises(UserError, match="prefixes in a beam"):
        engine.search([[4]], [[5]], BeamOptions(width=2), None)


class Supervisor:
    """Counts pauses, and says after the second that nothing is wanted, or ends the work."""

    def __init__(self, *, ends: bool) -> None:
        self.ends, self.count = ends, 0

    def pause(self) -> None:
        self.count += 1
        if self.ends and self.count > 2:
            raise ComputationEnded

    def find_wanted(self) -> list[bool] | None:
        return None if self.count <= 2 else [False] * 40


@pytest.mark.parametrize("width", [1, 4])
def test_others_may_go_first_and_end_it(tmp_path: Path, model: Portable, width: int) -> None:
    engine, given = searcher(model, tmp_path), draw_sources(40, 12, random.Random(5))
    options = BeamOptions(width=width, max_length_factor=5, max_rounds=0)
    whole = engine.search(given, [[] for _ in given], options, None)
    by = Supervisor(ends=False)
    with supervise(by):
        found = engine.search(given, [[] for _ in given], options, tick_of(range(40)))
    assert 2 < by.count < 30
    assert found != whole
    with supervise(Supervisor(ends=True)), pytest.raises(ComputationEnded):
        engine.search(given, [[] for _ in given], options, tick_of(range(40)))


def test_a_source_beyond_its_table_is_refused(tmp_path: Path, model: Portable) -> None:
    with pytest.raises(UserError, match="at most 2,047"):
        searcher(model, tmp_path).search([[4] * 2048], [[]], BeamOptions(), None)


def test_a_wrong_engine_is_not_used(model: Portable, monkeypatch: pytest.MonkeyPatch) -> None:
    from saccade.export import ctranslate2

    monkeypatch.setitem(ctranslate2.ACTIVATIONS, "relu", "SWISH")
    with pytest.raises(UserError, match="wrong on this machine"):
        engines.make_searcher(model, EngineChoice("ctranslate2"))


LINES = ["a b c", "", "h g f e", "d"]


@pytest.mark.parametrize("engine", engines.ENGINES)
def test_predictors_answer_the_same(tmp_path: Path, engine: EngineName) -> None:
    run = make_run(tmp_path / "run", "decoding.beam=3")
    here, there = load(run), load(run, engine=engine)
    assert there.predict([]) == []
    for options in ({}, {"width": 1}, {"num_best": 3}, {"width": 1, "attention": True}):
        ours, theirs = (one.predict(LINES, **options) for one in (here, there))
        for one, other in zip(ours, theirs, strict=True):
            assert cast(Any, one).pieces == cast(Any, other).pieces
            assert cast(Any, one).score == pytest.approx(cast(Any, other).score, abs=1e-4)
    for seen, same in zip(here.look(LINES), there.look(LINES), strict=True):
        for kind in seen.maps:
            assert torch.equal(seen.maps[kind].weight_LHTS, same.maps[kind].weight_LHTS)
    assert load(run, quantization="int8", engine=engine).predict(["a"])[0].line() is not None


def test_the_command_line_names_every_engine() -> None:
    assert get_args(EngineName) == ("auto", "torch", *engines.ENGINES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sample"], "sample: CTranslate2 draws with random numbers of its own; the engine torch can"),
        (["--beam", "2", "--no-repeat-ngram", "2"], "no_repeat_ngram in a beam"),
        (["--device", "cuda"], "device: cuda given with the engine ctranslate2"),
        (["--ensemble", "run"], "engine: ctranslate2 given with an ensemble"),
        (["--engine", "torch", "--quantization", "int8"], "quantization: int8 given"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "run")
    done = CliRunner().invoke(app, ["predict", "run", "--engine", "ctranslate2", *arguments], input="a b\n")
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.score=additive", "ctranslate2 can't say model.score: additive"),
        ("decoding.no_repeat_ngram=2", "no_repeat_ngram in a beam: .* and the run's config asks for it"),
    ],
)
def test_a_run_that_it_cannot_run_is_refused(tmp_path: Path, override: str, message: str) -> None:
    run = make_run(tmp_path / "run", "decoding.beam=2", override)
    with pytest.raises(UserError, match=message):
        load(run, **CT2)


def test_the_command_writes_the_same(tmp_path: Path) -> None:
    run, given = make_run(tmp_path / "run"), "a b c\nd e\n\n"
    texts = [
        CliRunner().invoke(app, ["predict", str(run), "--json", *more], input=given).stdout
        for more in (["--engine", "torch"], ["--engine", "ctranslate2"])
    ]
    ours, theirs = ([json.loads(line)["text"] for line in text.splitlines()] for text in texts)
    assert ours == theirs
    assert len(ours) == 3


def test_a_server_answers_the_same(tmp_path: Path) -> None:
    run, answers = make_run(tmp_path / "run", "languages.source=en", "languages.target=fr"), []
    for choice in (TORCH, EngineChoice("ctranslate2")):
        with serving(load_runs([run], engine=choice)) as served:
            asked = {"q": LINES, "source": "en", "target": "fr"}
            answers.append(served.post("/translate", **asked).json()["translatedText"])
            refused = served.post("/v1/translate", q="a b", beam=2, no_repeat_ngram=2)
            answers.append(served.post("/v1/look", text="a b").json()["attention"]["cross"]["weights"])
    assert answers[:2] == answers[2:]
    assert refused.status_code == 400
    assert "no_repeat_ngram in a beam" in refused.text
