"""Equal trainings: one file each time, and differences are seen and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from saccade.bench.repeat import trainings
from saccade.bench.repeat.cases import CASES
from saccade.bench.repeat.trainings import RepeatPlan, RepeatRow, TrainingHashes
from saccade.cli.bench import repeat as command
from saccade.runs import config as config_file

RUNNER, APP = CliRunner(), typer.Typer()
APP.command()(command.bench_repeat)


@pytest.mark.usefixtures("quick_start")
def test_equal_trainings_on_two_threads_leave_equal_files() -> None:
    plan = RepeatPlan(2, steps=4, is_busy=True)
    (row,) = trainings.repeat_all(["transformer"], plan)
    assert row.is_same
    assert [one.was_busy for one in row.trained] == [False, True]
    assert row.as_dict()["models"] == [2]


@pytest.mark.parametrize("name", list(CASES))
def test_every_case_is_a_valid_config(name: str, tmp_path: Path) -> None:
    config_file.check_config(CASES[name](tmp_path), name)


def trained(*hashes: str) -> list[TrainingHashes]:
    return [TrainingHashes(one, "c", rate, was_busy=False) for rate, one in enumerate(hashes, 1)]


def test_differences_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    row = RepeatRow("tagger", RepeatPlan(3), trained("a", "b", "b"))
    monkeypatch.setattr(command, "repeat_all", lambda *_: iter([row]))
    told = RUNNER.invoke(APP, ["--only", "tagger"])
    assert told.exit_code == 1
    assert "2 different models (2, 1), one checkpoint; 2.0 steps a second alone" in told.stdout
    assert json.loads(RUNNER.invoke(APP, ["--json"]).stdout)[0]["hashes"] == ["a", "b"]


def test_a_choice_among_kinds_does_not_go_with_a_config() -> None:
    with pytest.raises(ValueError, match="--only: given with a config"):
        RUNNER.invoke(APP, ["some.yaml", "--only", "tagger"], catch_exceptions=False)
