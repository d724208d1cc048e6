"""Which runs a server takes, and what it knows of their languages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from runs import make_run
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs.train import MAY_CHANGE
from saccade.serving import models
from saccade.serving.batcher import Batcher
from saccade.serving.models import LanguagePair, ModelSet, ServedRun, load_runs
from saccade.tasks.base import Predictor
from saccade.tasks.translate.config import LanguageCodes


def stub(name: str, source: str, target: str) -> ServedRun:
    return ServedRun(name, "translate", cast(Predictor, None), LanguagePair(source, target))


def model_set(*runs: ServedRun) -> ModelSet:
    return ModelSet(runs, lambda run: Batcher(run.predictor))


def test_languages_are_given_or_written_in_the_config_or_seen_in_file_names(tmp_path: Path) -> None:
    said = make_run(tmp_path / "said", "languages.source=de", "languages.target=pt-BR")
    assert load_runs([said])[0].pair == LanguagePair("de", "pt-BR")
    assert load_runs([said], [f"{said}=en-fr"])[0].pair == LanguagePair("en", "fr")
    assert load_runs([said], [f"{said}=zh-Hans:en"])[0].pair == LanguagePair("zh-Hans", "en")
    for number, ending in enumerate(("", ".gz", ".txt")):
        files = [
            f"data.train.{side}={tmp_path}/x.{code}{ending}" for side, code in (("source", "it"), ("target", "es"))
        ]
        run = make_named(tmp_path / f"seen{number}", files)
        assert load_runs([run])[0].pair == LanguagePair("it", "es")


def test_a_device_is_given_or_the_one_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", "languages.source=en", "languages.target=fr")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="device: 'cuda' given, but torch sees no CUDA device here"):
        load_runs([run], device="cuda")
    assert load_runs([run], device="cpu")[0].pair == LanguagePair("en", "fr")


def test_languages_in_a_config_are_checked_and_may_be_added_later(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    before = config_file.load_config(run / "config.yaml")
    after = before.model_copy(update={"languages": LanguageCodes(source="en", target="fr")})
    kept = [config.model_dump(exclude=MAY_CHANGE) for config in (before, after)]
    assert kept[0] == kept[1]
    with pytest.raises(UserError, match=r"languages\.source: 'English' given"):
        make_run(tmp_path / "other", "languages.source=English", "languages.target=fr")


def test_a_language_is_found_by_what_clients_call_it() -> None:
    found = model_set(stub("one", "zh-Hans", "en"), stub("two", "pt-BR", "en"), stub("three", "pt", "en"))
    asked = {"zh": "zh-Hans", "ZH-hans-CN": "zh-Hans", "zh-Hant": None, "pt": "pt", "pt-PT": "pt", "pt_br": "pt-BR"}
    assert {code: found.find_language(code) for code in asked} == asked
    assert model_set(stub("one", "zh-Hans", "zh-Hant")).find_language("zh") is None  # which of the two is not said


def make_named(folder: Path, files: list[str]) -> Path:
    """A run whose config names other files than it was made from."""
    make_run(folder)
    config_file.save_config(config_file.load_config(folder / "config.yaml", files), folder / "config.yaml")
    return folder


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        (["elsewhere=en-fr"], "--languages: 'elsewhere' is not one of the given runs"),
        (["{run}=english-french"], "allowed: RUN=en-fr"),
        (["{run}=en"], "allowed: RUN=en-fr"),
        (["en-fr"], "allowed: RUN=en-fr"),
    ],
)
def test_what_is_not_known_is_asked_for(tmp_path: Path, languages: list[str], message: str) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(UserError, match=message):
        load_runs([run], [one.format(run=run) for one in languages])


def test_a_run_of_another_task_has_no_languages(judging: list[ServedRun], folder: Path) -> None:
    assert [run.pair for run in judging] == [None] * 5
    with pytest.raises(UserError, match="is a run of the task classify, which does not translate"):
        load_runs([folder / "labels"], [f"{folder / 'labels'}=en-fr"])


def read_features(writer: Any) -> Any:
    return replace(writer, reader=replace(writer.reader, side=None))


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("caption", read_features, "it reads feature maps; a server reads pictures, sounds and texts"),
    ],
)
def test_what_reads_files_is_not_served(
    folder: Path,
    judging: list[ServedRun],
    translating: list[ServedRun],
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    change: Callable[[Any], Any],
    message: str,
) -> None:
    run = next(run for run in [*judging, *translating] if run.task == task)
    monkeypatch.setattr(models, "load_run", lambda _, **options: change(run.predictor))
    with pytest.raises(UserError, match=message):
        load_runs([folder / run.name])


def test_of_two_that_translate_the_same_the_first_is_asked() -> None:
    found = model_set(stub("a", "en", "fr"), stub("b", "en", "de"), stub("c", "en", "fr"), stub("d", "de", "en"))
    assert found.pairs[LanguagePair("en", "fr")].run.name == "a"
    assert (found.sources, found.languages) == (["en", "de"], ["en", "fr", "de"])
    assert (found.targets("en"), found.targets("de")) == (["en", "fr", "de"], ["en", "de"])
    assert found.get("c").run.name == "c"
    assert found.get(None).run.name == "a"


def test_mistakes() -> None:
    with pytest.raises(UserError, match="a: two runs have this name"):
        model_set(stub("a", "en", "fr"), stub("a", "en", "de"))
    found = model_set(stub("a", "en", "fr"))
    wrong: Any
    for wrong, message in (
        (lambda: found.get("b"), "no model has this name; allowed: a"),
        (lambda: found.for_task("tag"), "this server has no model of the task tag"),
        (lambda: found.for_task("translate", "b"), "no model of the task translate has this name; allowed: a"),
    ):
        with pytest.raises(UserError, match=message):
            wrong()
