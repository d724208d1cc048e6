"""What Python programs call: train with callbacks, evaluate, load; and the tutorial, which does all of it."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import saccade
from saccade.cli.predict import EvidenceFlags, SamplingFlags, SearchFlags
from saccade.errors import UserError
from saccade.runs.config import check_config

ROOT = Path(__file__).parents[1]


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A config of a small tagger, as a mapping, and its data."""
    monkeypatch.chdir(tmp_path)
    Path("rows.txt").write_text("Anna B-PER\nis O\n\nin O\nUlm B-LOC\n\n" * 4, "utf-8")
    return {
        "task": "tag",
        "device": "cpu",
        "data": {"train": "rows.txt", "valid": "rows.txt", "test": "rows.txt"},
        "model": {"width": 4, "word_width": 3, "character_width": 4},
        "training": {"max_steps": 6, "validate_every": 2, "batch_size": 2, "warmup_steps": 2},
    }


def test_training_tells_each_step_and_validation(content: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    events = list[saccade.TrainingEvent]()
    run = saccade.train(content, folder="run", callbacks=[events.append], quiet=True)
    assert capsys.readouterr().out == ""
    assert [(event.kind[0], event.step) for event in events] == [
        (kind, step) for last in (2, 4, 6) for kind, step in (("s", last - 1), ("s", last), ("v", last))
    ]
    assert {event.max_steps for event in events} == {6}
    steps = [event for event in events if event.kind == "step"]
    assert all(math.isfinite(event.loss) for event in events)
    assert set(steps[0].figures) == {"loss", "norm", "learning_rate", "items_per_second"}
    validations = [event for event in events if event.kind == "validation"]
    assert {"score", "valid_f1", "valid_loss"} <= set(validations[0].figures)
    best = max(event.figures["score"] for event in validations)
    assert (run.folder, run.step, run.best_score) == (Path("run"), 6, best)
    assert [event.step for event in validations if event.is_best][-1] == run.best_step
    assert not any(event.is_best for event in steps)


def test_a_callback_stops_and_the_same_call_goes_on(
    content: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = saccade.train(content, folder="whole", quiet=True)

    def stop(event: saccade.TrainingEvent) -> None:
        if event.step == 3:
            event.stop()

    stopped = saccade.train(content, folder="parts", callbacks=[stop])
    assert (stopped.step, whole.step) == (3, 6)
    assert "Stopped by a callback after step 3. The same call goes on." in capsys.readouterr().out
    assert saccade.load(stopped).predict(["Anna is"])
    assert Path("parts/report.html").exists()
    assert saccade.train(content, folder="parts", quiet=True).step == 6
    one, two = (Path(name, "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == two


def test_an_error_in_a_callback_is_the_callers(content: dict[str, Any]) -> None:
    def fail(_: saccade.TrainingEvent) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        saccade.train(content, folder="run", callbacks=[fail], quiet=True)
    assert saccade.train(content, folder="run", quiet=True).step == 6


def test_a_config_is_a_mapping_an_object_or_a_file(content: dict[str, Any]) -> None:
    given = {**content, "training": dict(content["training"])}
    one = saccade.train(given, {"training.max_steps": 2, "seed": 3}, folder="one", quiet=True)
    assert given == content
    assert one.step == 2
    two = saccade.train(check_config(content, "test"), {"training.max_steps": 2}, folder=Path("two"), quiet=True)
    assert two.step == 2
    Path("mine.yaml").write_text(str(content).replace("'", ""), "utf-8")
    three = saccade.train("mine.yaml", {"training.max_steps": 2}, quiet=True, threads=1, device="cpu")
    assert three.folder == Path("runs/mine")
    assert "seed: 3" in (one.folder / "config.yaml").read_text("utf-8")


@pytest.mark.parametrize(
    ("config", "arguments", "message"),
    [
        ({"task": "tag"}, {}, "config: data: missing"),
        ({"task": "tags"}, {"folder": "x"}, "config: task: 'tags' given; allowed: translate, classify"),
        (None, {"overrides": {"training.steps": 3}, "folder": "x"}, "config: training.steps: unknown"),
        (None, {"overrides": {"seed.x": 3}, "folder": "x"}, "seed.x: seed is not a section"),
        (None, {}, "folder: none given; a config that is not a file needs one"),
        (None, {"folder": "x", "device": "gpu"}, "config: device: 'gpu' given"),
        ("nothing.yaml", {}, "config: there is no file at nothing.yaml"),
    ],
)
def test_what_cannot_be_trained(content: dict[str, Any], config: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        saccade.train(content | {"seed": 1} if config is None else config, **arguments)
    assert str(refused.value).startswith(message)


def test_a_run_is_scored_on_files_or_on_its_own_test_set(content: dict[str, Any]) -> None:
    run = saccade.train(content, folder="run", quiet=True)
    own = saccade.evaluate(run)
    assert (
        own.scores
        == saccade.evaluate("run", "rows.txt").scores
        == saccade.evaluate(saccade.load(run), "rows.txt").scores
    )
    assert own.scores["num_sentences"] == 8
    with pytest.raises(UserError, match="files: none given; a loaded run needs the files"):
        saccade.evaluate(saccade.load(run))
    with pytest.raises(UserError, match="device: cpu given with a loaded run"):
        saccade.evaluate(saccade.load(run), "rows.txt", device="cpu")


def test_every_option_of_the_command_is_documented_for_python() -> None:
    text = (ROOT / "docs" / "python.md").read_text("utf-8").split("The options of `predict`")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    flags = {field.name for group in (SearchFlags, SamplingFlags, EvidenceFlags) for field in fields(group)}
    assert documented == flags - {"width"} | {"beam", "prefixes", "glossary", "writes_unknown", "samples", "window"}


@pytest.mark.usefixtures("quick_start")
def test_the_tutorial_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "docs" / "examples" / "tutorial.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the model is in runs/tutorial" in done.stdout
    assert "1,000 texts: accuracy 9" in done.stdout
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "runs" / "tutorial" / "report.html").exists()
