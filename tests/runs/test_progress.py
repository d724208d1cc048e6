"""What a run says while it trains."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from saccade.runs.progress import TrainingBar
from saccade.training.checkpoints import Progress


def said(folder: Path, scores: list[float], name: str = "bleu") -> list[str]:
    """Return what is said about still scores after these validations."""
    options = SimpleNamespace(max_steps=100, device=torch.device("cpu"))
    trainer: Any = SimpleNamespace(options=options, progress=Progress(), folder=folder)
    text = io.StringIO()
    bar = TrainingBar(Console(file=text, width=200), trainer, unit="tokens", tensorboard=False)
    for step, score in enumerate(scores, 1):
        bar.report(Progress(step=step), {"score": score, f"valid_{name}": abs(score), "valid_loss": 1.0})
    return [line for line in text.getvalue().splitlines() if "validations" in line]


STILL = "BLEU 0.00 at each of the last 4 validations: it can't tell them apart (training.metric); "


@pytest.mark.parametrize(
    ("scores", "count"),
    [([0.0] * 3, 0), ([0.0] * 4, 1), ([0.0] * 9, 1), ([0.0, 0.0, 0.0, 1.0, 0.0], 0), ([1.0] * 4 + [2.0] * 4, 2)],
)
def test_a_score_that_does_not_move_is_said_once(scores: list[float], count: int, tmp_path: Path) -> None:
    assert len(said(tmp_path, scores)) == count


def test_how_it_is_said_and_that_perfect_scores_may_stay(tmp_path: Path) -> None:
    assert said(tmp_path, [0.0] * 4) == [f"{STILL}the loss decides which is best."]
    assert said(tmp_path, [100.0] * 4) == []
    assert said(tmp_path, [-0.0] * 4, "wer") == []
