"""What a run says while it trains."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from saccade.cli import terminal
from saccade.runs.progress import TrainingBar
from saccade.tasks.console import show_progress
from saccade.training import rate
from saccade.training.checkpoints import Progress


def bar_of(folder: Path, text: io.StringIO, width: int = 200) -> TrainingBar:
    options = SimpleNamespace(max_steps=100, device=torch.device("cpu"))
    trainer: Any = SimpleNamespace(options=options, progress=Progress(), folder=folder)
    return TrainingBar(Console(file=text, width=width), trainer, unit="tokens", tensorboard=False)


def reported(folder: Path, validations: list[dict[str, float]]) -> list[str]:
    """Return the lines that a run says at these validations."""
    text = io.StringIO()
    bar = bar_of(folder, text)
    for step, measured in enumerate(validations, 1):
        bar.report(Progress(step=step), {**measured, "valid_loss": 1.0})
    return text.getvalue().splitlines()


def said(folder: Path, scores: list[float], name: str = "bleu") -> list[str]:
    """Return what is said about still scores after these validations."""
    lines = reported(folder, [{"score": score, f"valid_{name}": abs(score)} for score in scores])
    return [line for line in lines if "validations" in line]


def test_each_line_is_one_however_narrow_the_console_is(tmp_path: Path) -> None:
    text = io.StringIO()
    bar = bar_of(tmp_path, text, width=20)
    for step in range(1, 5):
        bar.report(Progress(step=step), {"score": 0.0, "valid_bleu": 0.0, "valid_loss": 1.0})
    *lines, still = text.getvalue().splitlines()
    assert lines == [f"step {step}: BLEU 0.00, loss 1.00" for step in range(1, 5)]
    assert still == f"{STILL}the loss decides which is best."


def test_the_bar_shows_what_the_model_is_kept_for(tmp_path: Path) -> None:
    bar = bar_of(tmp_path, io.StringIO())
    bar.report(Progress(step=1), {"valid_loss": 0.5, "score": 90.0, "valid_accuracy": 90.0})  # the loss goes before
    assert bar.bar.tasks[0].fields["valid"] == "accuracy 90.00"


STILL = "BLEU 0.00 at each of the last 4 validations: it can't tell them apart (training.metric); "


@pytest.mark.parametrize(
    ("scores", "count"),
    [([0.0] * 3, 0), ([0.0] * 4, 1), ([0.0] * 9, 1), ([0.0, 0.0, 0.0, 1.0, 0.0], 0), ([1.0] * 4 + [2.0] * 4, 2)],
)
def test_a_score_that_does_not_move_is_said_once(scores: list[float], count: int, tmp_path: Path) -> None:
    assert len(said(tmp_path, scores)) == count


def test_how_it_is_said_and_that_perfect_scores_may_stay(tmp_path: Path) -> None:
    assert said(tmp_path, [0.0] * 4) == [f"{STILL}the loss decides which is best."]
    first = [{"valid_loss": 0.7, "score": 0.0, "valid_bleu": 0.0}] * 4  # the loss goes before in some tasks
    assert [line for line in reported(tmp_path, first) if "validations" in line] == [
        f"{STILL}the loss decides which is best."
    ]
    assert said(tmp_path, [100.0] * 4) == []
    assert said(tmp_path, [-0.0] * 4, "wer") == []


def test_outputs_that_were_cut_are_counted_below_the_scores_and_in_the_log(tmp_path: Path) -> None:
    whole: dict[str, float] = {"score": 2.0, "valid_bleu": 2.0, "num_outputs": 1500}
    lines = reported(tmp_path, [{**whole, "cut_max_rounds": 12, "cut_max_length_factor": 194}, whole])
    assert lines == [
        "step 1: BLEU 2.00, loss 1.00",
        "194 of 1,500 outputs reached their greatest length: decoding.max_length_factor",
        "12 of 1,500 outputs were cut where they went in circles: decoding.max_rounds",
        "step 2: BLEU 2.00, loss 1.00",
    ]
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").splitlines()]
    assert [row.get("cut_max_length_factor") for row in rows] == [194, None]


@pytest.mark.parametrize(("every", "count"), [(0.0, 2), (60.0, 0)])
def test_where_there_is_no_terminal_lines_tell_how_far_it_is(
    every: float, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rate, "TELL_EVERY", every)
    text = io.StringIO()
    bar = bar_of(tmp_path, text)
    for step in (5, 6):
        bar.report(Progress(step=step), {"loss": 2.0, "items_per_second": 1234.0})
    lines = text.getvalue().splitlines()
    assert [line.rpartition(", ")[0] for line in lines] == [
        "step 5 of 100: loss 2.000 ppl 7.4, 1,234 tokens a second",
        "step 6 of 100: loss 2.000 ppl 7.4, 1,234 tokens a second",
    ][:count]

    text = io.StringIO()
    assert list(show_progress(Console(file=text), range(2500), "preparing data.train")) == list(range(2500))
    told = ["preparing data.train: 1,000 so far", "preparing data.train: 2,000 so far"]
    assert text.getvalue().splitlines() == told[:count]

    assert list(terminal.count_outputs(iter("ab"), 2, hidden=False)) == ["a", "b"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(", ")[0] for line in lines] == ["1 of 2 lines", "2 of 2 lines"][:count]
