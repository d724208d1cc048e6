"""Proves on a user's own config that a killed and resumed run ends with bitwise the same weights."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from saccade.runs.process import train_command, train_in_process
from saccade.training import checkpoints

SHARE_BEFORE = 0.2  # of kills that come before the first step, while data are prepared or a checkpoint is read


class ResumeVerdict(NamedTuple):
    """Whether the weights were the same, after how many steps and kills."""

    is_same: bool
    num_steps: int
    num_kills: int


class RunTimes(NamedTuple):
    """Seconds from the start to the first step, and from there to the end."""

    before: float
    training: float


def verify(config: Path, overrides: list[str], *, kills: int, steps: int, console: Console) -> ResumeVerdict:
    """Train twice for a few steps, once killed (kill -9) and resumed at random moments; compare every byte."""
    short = [f"training.max_steps={steps}", f"training.save_every={max(1, steps // 8)}"]
    short += [f"training.validate_every={max(1, steps // 2)}", "training.patience=null", "device=cpu"]
    arguments = [str(config), *overrides, *short]
    with tempfile.TemporaryDirectory(prefix="saccade-verify-") as name:
        whole, killed = Path(name) / "whole", Path(name) / "killed"
        console.print(f"one run of {steps:,} steps, left alone ...")
        times = _run_to_end(arguments, whole)
        arguments = [str(whole / "config.yaml")]  # both runs must use the same chosen values
        num_kills, is_same = 0, True
        while num_kills < kills:
            if _run_until_killed(arguments, killed, times):
                num_kills += 1
                console.print(f"killed at {_where(killed)} ({num_kills} of {kills})")
            else:  # it ended before the kill: compare it, and start another
                is_same = is_same and _are_same(whole, killed)
                shutil.rmtree(killed)
        train_in_process(arguments, killed)
        return ResumeVerdict(is_same and _are_same(whole, killed), steps, num_kills)


def _run_to_end(arguments: list[str], folder: Path) -> RunTimes:
    started = time.monotonic()
    train_in_process(arguments, folder)
    training = time.time() - (folder / "versions.json").stat().st_mtime
    return RunTimes(time.monotonic() - started - training, training)


def _run_until_killed(arguments: list[str], folder: Path, times: RunTimes) -> bool:
    """Return whether the run was still at work when it was killed."""
    since = time.time()
    with subprocess.Popen(
        train_command(arguments, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        if random.random() < SHARE_BEFORE:
            time.sleep(random.uniform(0.0, times.before))
        else:
            while process.poll() is None and not _has_begun(folder, since):
                time.sleep(0.02)
            time.sleep(random.uniform(0.0, times.training))
        if process.poll() is None:
            process.kill()
            return True
    if process.returncode:
        raise RuntimeError(f"training ended with exit code {process.returncode} after a resume")
    return False


def _has_begun(folder: Path, since: float) -> bool:
    """Return whether the first step has begun: the versions are written just before it."""
    path = folder / "versions.json"
    return path.exists() and path.stat().st_mtime > since


def _where(folder: Path) -> str:
    found = checkpoints.list_checkpoints(folder / "checkpoints")
    return f"checkpoint {int(found[-1].stem.removeprefix('step-')):,}" if found else "no checkpoint yet"


def _are_same(whole: Path, killed: Path) -> bool:
    """Compare the last checkpoint (weights, optimizer, progress) and the best model, byte by byte."""
    names = [checkpoints.list_checkpoints(whole / "checkpoints")[-1].relative_to(whole), Path("model.safetensors")]
    return all((whole / name).read_bytes() == (killed / name).read_bytes() for name in names)
