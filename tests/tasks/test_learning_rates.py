"""The learning rates of taggers and classifiers: a few steps with them learn what USUAL_RATE does not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from saccade.config.base import USUAL_RATE
from saccade.runs import config as config_file
from saccade.runs import train

TOWNS, PEOPLE = ["Rome", "Oslo", "Lima", "Bern", "Kiel"], ["Anna", "Bob", "Ewa", "Hugo", "Ines"]
GOOD, BAD = ["good", "fine", "lovely", "superb"], ["bad", "dull", "awful", "poor"]


def tagged(draw: random.Random) -> str:
    """A sentence with tags, a word on each line."""
    town, person = draw.choice(TOWNS), draw.choice(PEOPLE)
    forms = [f"fly to {town} with {person}", f"tell {person} of {town}", f"{person} lives in {town}", f"is {town} big"]
    tags = dict.fromkeys(TOWNS, "B-TOWN") | dict.fromkeys(PEOPLE, "B-PERSON")
    return "".join(f"{word} {tags.get(word, 'O')}\n" for word in draw.choice(forms).split()) + "\n"


def labelled(draw: random.Random) -> str:
    """A label and a sentence; "not" turns it round."""
    is_good, is_turned = draw.random() < 0.5, draw.random() < 0.3
    word = draw.choice(GOOD if is_good != is_turned else BAD)
    return (
        f"{'good' if is_good else 'bad'} the {draw.choice(['film', 'room', 'meal'])} was {'not ' * is_turned}{word}\n"
    )


def score(folder: Path, task: str, make: Callable[[random.Random], str], **training: Any) -> float:
    """Train for a few steps on 300 examples that `make` draws, and score 60 others."""
    draw = random.Random(3)
    folder.mkdir()
    for part, count in (("train", 300), ("valid", 60)):
        (folder / part).write_text("".join(make(draw) for _ in range(count)), encoding="utf-8")
    steps = training["max_steps"]
    content = {
        "task": task,
        "device": "cpu",
        "data": {"train": f"{folder}/train", "valid": f"{folder}/valid"},
        "training": {"validate_every": steps, **training},
    }
    train.train(config_file.check_config(content, "test"), folder / "run", Console(quiet=True))
    lines = (folder / "run" / "log.jsonl").read_text("utf-8").splitlines()
    return float(json.loads(lines[-1])["score"])


@pytest.mark.parametrize(("task", "make", "steps"), [("tag", tagged, 30), ("classify", labelled, 60)])
def test_the_usual_rate_learns_in_a_few_steps_what_that_of_other_tasks_does_not(
    task: str, make: Callable[[random.Random], str], steps: int, tmp_path: Path
) -> None:
    assert score(tmp_path / "usual", task, make, max_steps=steps) > 95
    assert score(tmp_path / "other", task, make, max_steps=steps, learning_rate=USUAL_RATE) < 85
