"""Train one config many times, each time in a process of its own, and count what differs."""

from __future__ import annotations

import hashlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from saccade.bench.repeat.cases import CASES
from saccade.errors import UserError
from saccade.runs.process import train_command
from saccade.runs.report import read_log
from saccade.training import checkpoints

FREE = """
import contextlib
from saccade.__main__ import choose_waiting, main
with choose_waiting():
    pass
from saccade.training import loop
loop.repeat_exactly = lambda device: contextlib.nullcontext()
main()
"""  # `saccade train` whose sums may be taken in any order: what repeating costs, and whether differences are seen


@dataclass(frozen=True)
class RepeatPlan:
    """Settings of equal trainings: their number, steps, threads and device, and whether sums may vary."""

    times: int
    steps: int = 20
    threads: int = 2
    device: str = "cpu"
    is_busy: bool = False  # every second one runs beside a busy process
    is_free: bool = False
    overrides: Sequence[str] = ()


class TrainingHashes(NamedTuple):
    """The hashes of one training's files, and its steps a second after the first ones."""

    model: str
    checkpoint: str
    rate: float
    was_busy: bool


class RepeatRow(NamedTuple):
    """The results of equal trainings of one config."""

    name: str
    plan: RepeatPlan
    trained: list[TrainingHashes]

    @property
    def models(self) -> list[int]:
        """Count the equal model files of each kind, most frequent first."""
        return [count for _, count in Counter(one.model for one in self.trained).most_common()]

    @property
    def checkpoints(self) -> list[int]:
        """Count the equal last checkpoints of each kind, most frequent first."""
        return [count for _, count in Counter(one.checkpoint for one in self.trained).most_common()]

    @property
    def is_same(self) -> bool:
        """Return True if there is one model and one checkpoint."""
        return len(self.models) == len(self.checkpoints) == 1

    def rate(self, *, was_busy: bool) -> float | None:
        """Return the median of steps a second, quiet or beside a busy process."""
        rates = [one.rate for one in self.trained if one.was_busy is was_busy]
        return statistics.median(rates) if rates else None

    def as_dict(self) -> dict[str, Any]:
        quiet, busy = (self.rate(was_busy=is_busy) for is_busy in (False, True))
        return {
            "name": self.name,
            "device": self.plan.device,
            "threads": self.plan.threads,
            "steps": self.plan.steps,
            "is_free": self.plan.is_free,
            "models": self.models,
            "checkpoints": self.checkpoints,
            "hashes": sorted({one.model for one in self.trained}),
            "steps_per_second": quiet,
            "steps_per_second_busy": busy,
        }


def repeat_all(
    names: Sequence[str], plan: RepeatPlan, say: Callable[[str], None] = lambda line: None
) -> Iterator[RepeatRow]:
    """Repeat a short training of each of these kinds."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="saccade-repeat-") as folder:
            config = Path(folder) / "config.yaml"
            config.write_text(yaml.safe_dump(CASES[name](Path(folder))), "utf-8")
            yield repeat(config, plan, name=name, say=say)


def repeat(
    config: Path, plan: RepeatPlan, *, name: str = "", say: Callable[[str], None] = lambda line: None
) -> RepeatRow:
    """Train a config several times and compare what is left."""
    row = RepeatRow(name or config.stem, plan, [])
    with tempfile.TemporaryDirectory(prefix="saccade-repeat-") as folder:
        for number in range(plan.times):
            is_busy = plan.is_busy and number % 2 == 1
            with _busy_process() if is_busy else nullcontext():
                row.trained.append(_train(config, plan, Path(folder) / "run", was_busy=is_busy))
            say(f"{row.name}: {number + 1} of {plan.times}{', beside a busy process' if is_busy else ''}")
    return row


def _train(config: Path, plan: RepeatPlan, folder: Path, *, was_busy: bool) -> TrainingHashes:
    short = [f"training.{name}={plan.steps}" for name in ("max_steps", "validate_every", "save_every")]
    where = [f"device={plan.device}", "training.patience=null"]
    arguments = [str(config), *plan.overrides, *short, *where, f"--threads={plan.threads}"]
    command = train_command(arguments, folder)
    if plan.is_free:
        command = [sys.executable, "-c", FREE, *command[3:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        raise UserError(done.stderr.strip().removeprefix("saccade: "))
    if done.returncode:
        raise RuntimeError(f"training ended with exit code {done.returncode}:\n{done.stderr}")
    last = checkpoints.list_checkpoints(folder / "checkpoints")[-1]
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "model.safetensors", last)]
    rate = _steps_per_second(folder / "log.jsonl")
    shutil.rmtree(folder)
    return TrainingHashes(hashes[0], hashes[1], rate, was_busy)


def _steps_per_second(log: Path) -> float:
    """Divide the steps between two lines of the log by their seconds; the first line holds the start."""
    rows = [row for row in read_log(log) if "loss" in row]
    steps, seconds = rows[-1]["step"] - rows[0]["step"], sum(row["seconds"] for row in rows[1:])
    return float(steps / seconds) if seconds else float("nan")


@contextmanager
def _busy_process() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            yield
        finally:
            busy.kill()
