"""Proves on a user's own config that a killed and resumed run ends with bitwise the same weights."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from saccade.runs.process import train_command, train_in_process
from saccade.training import checkpoints

KILLED = """
import os, signal, sys
from saccade.__main__ import choose_waiting, main
last = int(sys.argv.pop(1))
with choose_waiting():
    pass
from saccade.training.loop import Trainer
take_step = Trainer._next_step
def take_step_or_die(self, batches):
    take_step(self, batches)
    if self.progress.step == last:
        os.kill(os.getpid(), getattr(signal, 'SIGKILL', signal.SIGTERM))
Trainer._next_step = take_step_or_die
main()
"""  # `saccade train`, killed after a step: a watching parent would come too late where steps take milliseconds
KILLED_CODE = -signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM  # Windows: SIGTERM ends at once


class ResumeVerdict(NamedTuple):
    """The outcome of a check of resuming: whether the weights were the same, after how many steps and kills."""

    is_same: bool
    num_steps: int
    num_kills: int


def verify(
    config: Path, overrides: list[str], *, kills: int, steps: int, threads: int | None = None, console: Console
) -> ResumeVerdict:
    """Train twice for a few steps, once killed (kill -9) and resumed; compare every byte.

    The steps of the kills are spread over the run, each between two checkpoints: some steps are always taken twice.
    """
    every = max(2, steps // 8)
    short = [f"training.max_steps={steps}", f"training.save_every={every}"]
    short += [f"training.validate_every={max(1, steps // 2)}", "training.patience=null", "device=cpu"]
    options = [] if threads is None else [f"--threads={threads}"]
    with tempfile.TemporaryDirectory(prefix="saccade-verify-") as name:
        whole, killed = Path(name) / "whole", Path(name) / "killed"
        console.print(f"one run of {steps:,} steps, left alone ...")
        train_in_process([str(config), *overrides, *short, *options], whole)
        arguments = [str(whole / "config.yaml"), *options]  # both runs must use the same chosen values
        num_kills, is_same = 0, True
        places = cycle(_places(steps, every))
        while num_kills < kills:
            place = next(places)
            if _last_checkpoint(killed) > place:  # the next round: compare, and start another
                train_in_process(arguments, killed)
                is_same = is_same and _are_same(whole, killed)
                shutil.rmtree(killed)
            if _kill_at(place, arguments, killed):
                num_kills += 1
                console.print(f"killed in step {place + 1:,}, after {_describe_last(killed)} ({num_kills} of {kills})")
        train_in_process(arguments, killed)
        return ResumeVerdict(is_same and _are_same(whole, killed), steps, num_kills)


def _places(steps: int, every: int) -> list[int]:
    """Return the steps after which a run is killed: before the first checkpoint, and once between any two."""
    return [step for step in range(max(1, every // 2), steps, every) if step % every]


def _kill_at(step: int, arguments: list[str], folder: Path) -> bool:
    """Train until a step is done, and kill (-9) at once; return whether the run was still at work."""
    command = [sys.executable, "-c", KILLED, str(step), *train_command(arguments, folder)[3:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, KILLED_CODE):
        raise RuntimeError(f"training ended with exit code {done.returncode} after a resume:\n{done.stderr}")
    return done.returncode == KILLED_CODE


def _last_checkpoint(folder: Path) -> int:
    found = checkpoints.list_checkpoints(folder / "checkpoints")
    return int(found[-1].stem.removeprefix("step-")) if found else 0


def _describe_last(folder: Path) -> str:
    last = _last_checkpoint(folder)
    return f"checkpoint {last:,}" if last else "no checkpoint yet"


def _are_same(whole: Path, killed: Path) -> bool:
    """Compare the last checkpoint (weights, optimizer, progress) and the best model, byte by byte."""
    names = [checkpoints.list_checkpoints(whole / "checkpoints")[-1].relative_to(whole), Path("model.safetensors")]
    return all((whole / name).read_bytes() == (killed / name).read_bytes() for name in names)
