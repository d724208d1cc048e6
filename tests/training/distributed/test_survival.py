"""A training under torchrun survives a killed process, and ends as one that was never killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import forked
from saccade.cli import app
from saccade.runs.process import train_command

LINES = [
    " ".join("abcdefgh"[(row * 5 + step * (1 + row % 3)) % 8] for step in range(3 + row % 6)) for row in range(200)
]
STEPS, SAVED = 240, 20
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}


def config(folder: Path) -> Path:
    (folder / "text.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    sides = {"source": str(folder / "text.txt"), "target": str(folder / "text.txt")}
    content = {
        "task": "translate",
        "device": "cpu",
        "data": {"train": sides, "valid": sides},
        "tokenizer": {"kind": "words"},
        "model": {"kind": "transformer", "width": 16, "num_heads": 2, "hidden_width": 16, "num_layers": 1},
        "training": {
            "max_steps": STEPS,
            "accumulate": 2,
            "tokens_per_batch": 200,
            "warmup_steps": 5,
            "save_every": SAVED,
            "validate_every": STEPS,
            "precision": "float32",
        },
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def train_alone(path: Path, run: Path) -> str:
    found = CliRunner().invoke(app, ["train", str(path), "--run", str(run)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


@contextmanager
def torchrun(path: Path, folder: Path, *, restarts: int, looks_every: float = 0.1) -> Iterator[subprocess.Popen[str]]:
    options = ["--max-restarts", str(restarts), "--monitor-interval", str(looks_every), "--no-python", "--"]
    call = forked.torchrun(*options, *train_command([str(path)], folder / "run"))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(call, cwd=folder, env=ALONE, **pipes) as process:  # type: ignore[call-overload]
        yield process


def kill_in_the_middle(process: subprocess.Popen[str], folder: Path, rank: int) -> None:
    """Send SIGKILL to a process of a team once it has saved two checkpoints."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        saved = folder.glob("run/checkpoints/*")
        steps = [int(found[1]) for path in saved if (found := re.search(r"-(\d+)\.", path.name))]
        if steps and max(steps) >= 2 * SAVED:
            assert max(steps) < STEPS, "it had ended before it was killed"
            os.kill(int((folder / f"rank{rank}").read_text("utf-8")), signal.SIGKILL)
            return
        time.sleep(0.02)
    raise AssertionError(f"it was not killed: {process.communicate(timeout=5)}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """The config, and the model of one process that nobody killed."""
    folder = tmp_path_factory.mktemp("whole")
    path = config(folder)
    train_alone(path, folder / "run")
    return path, (folder / "run" / "model.safetensors").read_bytes()


@pytest.mark.usefixtures("quick_start")
def test_one_restart_is_enough(whole: tuple[Path, bytes], tmp_path: Path) -> None:
    path, expected = whole
    with torchrun(path, tmp_path, restarts=1) as process:
        kill_in_the_middle(process, tmp_path, 0)  # the one that writes; the next test kills the other
        shown, _ = process.communicate(timeout=300)
    assert process.returncode == 0, shown
    assert re.search(r"Going on from step [1-9]", shown), shown
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == expected


@pytest.mark.usefixtures("quick_start")
def test_what_two_began_one_may_end(whole: tuple[Path, bytes], tmp_path: Path) -> None:
    path, expected = whole
    with torchrun(path, tmp_path, restarts=0, looks_every=2.0) as process:  # the other sees it before it is stopped
        kill_in_the_middle(process, tmp_path, 1)
        shown, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "saccade: another process of this training has ended; the same command goes on" in shown, shown
    assert "[rank0]:" not in shown, "no traceback of the other process"
    assert "Going on from step" in train_alone(path, tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == expected
