"""Proof on a user's own config that a run which is killed and resumed ends with bitwise the same weights."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from saccade.data.mistakes import Mistake
from saccade.training import checkpoints

COMMAND = [sys.executable, "-c", "from saccade.cli import main; main()", "train"]


class Verdict(NamedTuple):
    """What was seen."""

    is_same: bool
    num_steps: int
    kills: list[float]  # seconds after each start


def verify(config: Path, overrides: list[str], *, kills: int, steps: int, console: Console) -> Verdict:
    """Train twice for a few steps, once killed (kill -9) and resumed at random moments; compare every byte."""
    short = [f"training.max_steps={steps}", f"training.save_every={max(1, steps // 8)}"]
    short += [f"training.validate_every={max(1, steps // 2)}", "training.patience=null", "device=cpu"]
    arguments = [str(config), *overrides, *short]
    with tempfile.TemporaryDirectory(prefix="saccade-verify-") as name:
        whole, killed = Path(name) / "whole", Path(name) / "killed"
        console.print(f"one run of {steps:,} steps, left alone ...")
        seconds = _run_to_end(arguments, whole)
        moments: list[float] = []
        is_same = True
        while len(moments) < kills:
            moment = random.uniform(0.0, seconds)
            if _run_until(arguments, killed, moment):
                moments.append(moment)
                console.print(f"killed after {moment:.1f} s at {_where(killed)} ({len(moments)} of {kills})")
            else:  # it came to its end first: look at it, and begin another
                is_same = is_same and _are_same(whole, killed)
                shutil.rmtree(killed)
        _run_to_end(arguments, killed)
        return Verdict(is_same and _are_same(whole, killed), steps, moments)


def _run_to_end(arguments: list[str], folder: Path) -> float:
    started = time.monotonic()
    done = subprocess.run([*COMMAND, *arguments, "--run", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Mistake(done.stderr.strip().removeprefix("saccade: ") or f"training ended with {done.returncode}")
    return time.monotonic() - started


def _run_until(arguments: list[str], folder: Path, moment: float) -> bool:
    """Whether it was still at work when it was killed."""
    command = [*COMMAND, *arguments, "--run", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    return False


def _where(folder: Path) -> str:
    found = checkpoints.steps(folder / "checkpoints")
    return f"checkpoint {int(found[-1].stem.removeprefix('step-')):,}" if found else "no checkpoint yet"


def _are_same(whole: Path, killed: Path) -> bool:
    """The last checkpoint (weights, optimizer, where it stands) and the best model, byte by byte."""
    names = [checkpoints.steps(whole / "checkpoints")[-1].relative_to(whole), Path("model.safetensors")]
    return all((whole / name).read_bytes() == (killed / name).read_bytes() for name in names)
