"""A training under torchrun survives a killed process, and ends as one that was never killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

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


def command(path: Path, run: Path, *, restarts: int | None = None) -> list[str]:
    own = ["-m", "saccade", "train", str(path), "--run", str(run)]
    if restarts is None:
        return [sys.executable, *own]
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", str(restarts), "--monitor-interval", "0.1"]
    return [sys.executable, "-m", "torch.distributed.run", "--no-python", *options, "--", sys.executable, *own]


def kill_in_the_middle(torchrun: psutil.Popen, run: Path, rank: int) -> None:
    """Send SIGKILL to a process of a team once it has saved two checkpoints."""
    until = time.monotonic() + 120
    while time.monotonic() < until and torchrun.poll() is None:
        steps = [int(found[1]) for path in run.glob("checkpoints/*") if (found := re.search(r"-(\d+)\.", path.name))]
        if steps and max(steps) >= 2 * SAVED:
            assert max(steps) < STEPS, "it had ended before it was killed"
            (process,) = [each for each in torchrun.children() if each.environ().get("RANK") == str(rank)]
            process.send_signal(signal.SIGKILL)
            return
        time.sleep(0.02)
    raise AssertionError(f"it was not killed: {torchrun.communicate(timeout=5)}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    path = config(folder)
    subprocess.run(command(path, folder / "run"), env=ALONE, check=True, capture_output=True, timeout=300)
    return path, (folder / "run" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("rank", [0])  # the one that writes; the next test kills the other
def test_one_restart_is_enough(rank: int, whole: tuple[Path, bytes], tmp_path: Path) -> None:
    path, expected = whole
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    torchrun = psutil.Popen(command(path, tmp_path / "run", restarts=1), env=ALONE, **pipes)
    kill_in_the_middle(torchrun, tmp_path / "run", rank)
    shown, _ = torchrun.communicate(timeout=300)
    assert torchrun.returncode == 0, shown
    assert re.search(r"Going on from step [1-9]", shown), shown
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == expected


def test_what_two_began_one_may_end(whole: tuple[Path, bytes], tmp_path: Path) -> None:
    path, expected = whole
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    torchrun = psutil.Popen(command(path, tmp_path / "run", restarts=0), env=ALONE, **pipes)
    kill_in_the_middle(torchrun, tmp_path / "run", 1)
    shown, _ = torchrun.communicate(timeout=300)
    assert torchrun.returncode == 1
    assert "saccade: another process of this training has ended; the same command goes on" in shown
    assert "[rank0]:" not in shown, "no traceback of the other process"
    alone = subprocess.run(command(path, tmp_path / "run"), env=ALONE, capture_output=True, text=True, timeout=300)
    assert "Going on from step" in alone.stdout + alone.stderr
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == expected
