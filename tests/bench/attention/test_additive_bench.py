"""`saccade bench additive` at tiny sizes: everybody is measured, a failure is a line, goals say what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from saccade.bench import tables
from saccade.bench.attention import additive, contestants
from saccade.bench.attention.additive import AdditiveCase, AdditiveRow, AttentionShape
from saccade.bench.attention.goals import Goal, check_goals
from saccade.cli.bench import app
from saccade.errors import UserError

CPU = torch.device("cpu")
TINY = AdditiveCase("large", AttentionShape(3, 7, 11, 5), ("exact", "eager"), backward=True)


def row(case: str, name: str, **given: Any) -> AdditiveRow:
    plain = {"output": (1e-7, 1e-6), "query": (1e-8, 1e-7)}
    figures: dict[str, Any] = {
        "call_seconds": 2e-3,
        "seconds": 1e-3,
        "rate": 1e12,
        "errors": plain,
        "plain_errors": plain,
    }
    found = AdditiveRow(case, "cuda", "3x7x11x5", 3, given.pop("backward", False), "float32", name, 3, **figures)
    return replace(found, **given)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        TINY,
        AdditiveCase("step", AttentionShape(5, 1, 7, 13), ("attend", "eager step")),
        replace(TINY, contestants=("series",)),
    ]
    monkeypatch.setattr(additive, "all_cases", lambda *_, **__: cases)


def test_what_is_measured() -> None:
    ours, theirs = additive.measure(TINY, CPU, most=3)
    assert (ours.problem, theirs.problem) == (None, None)
    assert ours.rate == pytest.approx(3 * 7 * 11 * 5 / ours.seconds)  # type: ignore[operator]
    assert ours.errors is not None
    assert list(ours.errors) == ["output", "query", "key", "v", "value"]
    assert all(0 <= rms <= largest < 1e-5 for rms, largest in ours.errors.values())
    assert theirs.errors == theirs.plain_errors == ours.plain_errors
    assert theirs.error_ratio([], gradients=True) == 1
    assert ours.error_ratio([ours, theirs], gradients=True) == ours.error_ratio([], gradients=True)
    worse = replace(theirs, errors=dict.fromkeys(ours.errors, (1.0, 1.0)))
    ratio = ours.error_ratio([ours, worse], gradients=True)
    assert ratio is not None
    assert ratio < 1e-5


def test_a_wrong_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*inputs: Tensor) -> Tensor:
        return contestants.plain(*inputs) * 1.001

    monkeypatch.setattr(contestants, "exact", wrong)
    ratio = additive.measure(TINY, CPU, most=3)[0].error_ratio([], gradients=True)
    assert ratio is not None
    assert ratio > 100


def test_of_a_long_case_some_queries_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(additive, "CHECKED", {"cpu": 2 * 11 * 5})
    ours = additive.measure(TINY, CPU, most=3)[0]
    assert ours.errors is not None
    assert list(ours.errors) == ["output", "query"]
    assert ours.largest_error < 1e-5


def test_a_peer_that_does_not_fit_runs_on_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(additive, "_count_fitting", lambda *_: 1)
    ours, theirs = additive.measure(TINY, CPU, most=3)
    assert (ours.entries, theirs.entries) == (3, 1)
    assert theirs.rate == pytest.approx(3 * 7 * 11 * 5 / theirs.seconds)  # type: ignore[operator]


def test_a_batch_is_halved_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        available = 2 * 5 * 4 * 7 * 11 * 5 * 5  # half of it may be taken, and 0.9 of that

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    case = AdditiveCase("large", AttentionShape(8, 7, 11, 5), ("eager",), backward=True)
    assert additive._count_fitting(case, CPU) == 4
    assert additive._count_fitting(replace(case, backward=False), CPU) == 4


@pytest.mark.usefixtures("tiny")
def test_the_command_shows_tables_and_one_line_for_a_failure() -> None:
    shown = CliRunner().invoke(app, ["additive", "--quick"], env={"COLUMNS": "200"})
    assert shown.exit_code == 1  # the series needs a device
    for text in ("3x7x11x5", "eager step", "RMS error over plain float32's", "at most 2"):
        assert text in shown.output
    assert sum(line.startswith("series, 3x7x11x5, both passes: ") for line in shown.output.splitlines()) == 1


@pytest.mark.usefixtures("tiny")
def test_the_command_speaks_json() -> None:
    report = json.loads(CliRunner().invoke(app, ["additive", "--quick", "--json"]).stdout)
    assert report["machine"]["device"] == "cpu"
    assert [found["name"] for found in report["rows"]] == ["exact", "eager", "attend", "eager step", "series"]
    assert [found["problem"] is None for found in report["rows"]] == [True, True, True, True, False]
    assert all(isinstance(goal["is_met"], bool) for goal in report["goals"])


@pytest.mark.usefixtures("tiny")
def test_some_cases_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"--only: 'stop' given; allowed: large, step, with commas"):
        CliRunner().invoke(app, ["additive", "--quick", "--only", "large,stop"], catch_exceptions=False)
    report = json.loads(CliRunner().invoke(app, ["additive", "--quick", "--json", "--only", "step"]).stdout)
    assert [found["name"] for found in report["rows"]] == ["attend", "eager step"]
    measure = additive.measure

    def interrupted(case: AdditiveCase, *args: Any, **options: Any) -> list[AdditiveRow]:
        if case.name == "step":
            raise KeyboardInterrupt
        return measure(case, *args, **options)

    monkeypatch.setattr(additive, "measure", interrupted)
    report = json.loads(CliRunner().invoke(app, ["additive", "--quick", "--json"]).stdout)
    assert [found["name"] for found in report["rows"]] == ["exact", "eager"]


def test_a_case_without_inputs_is_a_problem_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: AdditiveCase) -> list[Tensor]:
        raise RuntimeError("Offset increment outside graph capture\nand more")

    monkeypatch.setattr(additive, "_inputs", fails)
    rows = additive.measure(TINY, CPU)
    assert [row.problem for row in rows] == ["RuntimeError: Offset increment outside graph capture"] * 2


def test_without_a_graph_there_are_figures_and_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> float:
        raise RuntimeError("capture")

    monkeypatch.setattr(additive, "queued_seconds", lambda _: 1e-4)
    monkeypatch.setattr(additive, "captured_seconds", fails)
    seconds, problem = additive._device_seconds(lambda: None, 2e-4, torch.device("cuda"))
    assert seconds == 1e-4
    assert problem is not None
    assert problem.endswith("RuntimeError: capture")
    monkeypatch.setattr(additive, "queued_seconds", lambda _: 2e-2)  # long enough to be launched meanwhile
    assert additive._device_seconds(lambda: None, 3e-2, torch.device("cuda")) == (2e-2, None)


def test_goals() -> None:
    rows = [
        row("large", "exact", rate=7.5e12),
        row("small", "exact", rate=3e12),
        row("large", "exact", rate=1.6e12, backward=True),
        row("large", "eager", rate=1e11, backward=True),
        row("large", "compile", rate=2e11, backward=True),
        row("narrow", "series", rate=13e12, errors={"output": (1e-5, 1e-4)}),
        row("narrow", "series", rate=20e12, errors={"output": (1e-3, 1e-2)}),
        row("long", "exact", backward=True, peak_bytes=3 << 30),
        row("step", "attend"),
        row("step", "eager step", call_seconds=3e-3, seconds=4e-3),
    ]
    found = {goal.name: (goal.found, goal.is_met) for goal in check_goals(rows, at_full_size=True)}
    assert found == {
        "large, forward, exact: T terms/s": (7.5, True),
        "small, forward, exact: T terms/s": (3, False),
        "large, both passes: times compile": (8, True),
        "large, both passes: times eager": (16, True),
        "series, error <= 1e-3: T terms/s": (13, True),
        "long, both passes: GiB": (3, False),
        "one query, 3x7x11x5, called: times eager": (1.5, False),
        "one query, 3x7x11x5, captured: times eager": (4, True),
        "output: RMS error over plain float32's": (1, True),
        "gradients: RMS error over plain float32's": (1, True),
    }
    assert [goal.name.split(":")[0] for goal in check_goals(rows, at_full_size=False)] == ["output", "gradients"]
    assert not Goal("nothing was measured", 1, None, None).is_met
    assert tables.of_goals(check_goals(rows, at_full_size=True)).row_count == 10


def test_full_size_on_a_device() -> None:
    cases = additive.all_cases(torch.device("cuda"))
    assert {str(case.shape) for case in cases} >= {"16x1024x1024x256", "64x64x64x512", "1x32768x32768x128"}
    assert all("compile" not in case.contestants for case in additive.all_cases(CPU, quick=True))
