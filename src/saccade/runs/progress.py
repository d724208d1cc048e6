"""Shows and logs the progress of a run."""

from __future__ import annotations

import itertools
import json
import math
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import psutil
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from saccade.errors import UserError
from saccade.files import replace_file
from saccade.inspection.pages.report import name_of
from saccade.tasks.console import say
from saccade.tasks.cuts import describe_cuts
from saccade.training import checkpoints
from saccade.training.loop import Trainer
from saccade.training.rate import Pace

LOG_EVERY = 10
SMOOTHING = 0.9  # of the loss that is shown
MANY_ALIKE = 4  # validations with the same score
FIELDS = (
    "loss {task.fields[loss]:.3f}{task.fields[perplexity]} {task.fields[rate]:,.0f} {task.fields[unit]}/s "
    "{task.fields[memory]:.1f} GiB {task.fields[valid]}"
)
SHORT = {"tokens": "tok"}


@final
class TrainingBar:
    """A bar with loss, perplexity (of tokens), real items a second, memory and time left; a JSONL log; TensorBoard."""

    def __init__(self, console: Console, trainer: Trainer, *, unit: str, tensorboard: bool) -> None:
        columns = (BarColumn(bar_width=8), MofNCompleteColumn(), TextColumn(FIELDS), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console)
        shown: dict[str, Any] = {"loss": math.nan, "perplexity": "", "rate": 0.0, "memory": 0.0, "valid": ""}
        total, done = trainer.options.max_steps, trainer.progress.step
        self.unit = unit
        self.task = self.bar.add_task(
            "training", total=total, completed=done, unit=SHORT.get(unit, unit.removesuffix("s")), **shown
        )
        self.log, self.device = trainer.folder / "log.jsonl", trainer.options.device
        _forget_after(self.log, trainer.progress)
        self.tensorboard = _open_tensorboard(trainer.folder / "tensorboard", done) if tensorboard else None
        self.last_step = total
        self.smoothed: dict[str, float] = {}
        self.last_score, self.num_alike = math.nan, 0
        self.logged, self.pace = time.monotonic(), Pace()

    def __enter__(self) -> TrainingBar:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()
        if self.tensorboard is not None:
            self.tensorboard.close()

    def report(self, progress: checkpoints.Progress, measured: dict[str, Any]) -> None:
        """Show and log a step or a validation."""
        shown: dict[str, Any] = {"memory": _measure_memory(self.device) / 2**30}
        if "loss" in measured:
            shown |= {"loss": self._smooth("loss", measured), "rate": measured["items_per_second"]}
            if self.unit == "tokens":
                shown["perplexity"] = f" ppl {math.exp(min(50.0, shown['loss'])):,.1f}"
            measured = {f"{self.unit}_per_second" if k == "items_per_second" else k: v for k, v in measured.items()}
        else:
            say(self.bar.console, _validation_line(progress, measured))
            for line in _describe_cuts(measured):
                say(self.bar.console, line, style="yellow")
            self._warn_of_still_score(measured)
            shown["valid"] = _format_score(measured)
        if "skipped" in measured:
            what = f"the loss is not finite; skipped ({progress.skipped} so far)"
            say(self.bar.console, f"step {progress.step:,}: {what}")
        is_rare = "loss" not in measured or "skipped" in measured or progress.step in (1, self.last_step)
        if is_rare or progress.step % LOG_EVERY == 0:
            now = time.monotonic()
            self._write({"step": progress.step, "epoch": progress.epoch, "seconds": now - self.logged, **measured})
            self.logged = now
        self.bar.update(self.task, completed=progress.step, **shown)
        if "loss" in measured:
            self._tell(progress.step, shown)

    def _warn_of_still_score(self, measured: dict[str, Any]) -> None:
        """Say once that the last validations had one and the same score, unless it can't be better."""
        score = measured["score"]
        self.num_alike = self.num_alike + 1 if score == self.last_score else 1
        self.last_score = score
        if self.num_alike == MANY_ALIKE and not _is_perfect(score):
            said = f"{_format_score(measured)} at each of the last {MANY_ALIKE} validations: it can't tell them apart"
            say(self.bar.console, f"{said} (training.metric); the loss decides which is best.", style="yellow")

    def _tell(self, step: int, shown: dict[str, Any]) -> None:
        """Print a plain line now and then where no bar can be drawn: in a file, in a pipe."""
        if not self.bar.console.is_terminal and self.pace.is_due():
            figures = (
                f"loss {shown['loss']:.3f}{shown.get('perplexity', '')}, {shown['rate']:,.0f} {self.unit} a second"
            )
            say(self.bar.console, f"step {step:,} of {self.last_step:,}: {figures}, {shown['memory']:.1f} GiB")

    def _smooth(self, name: str, measured: dict[str, Any]) -> float:
        earlier, now = self.smoothed.get(name, measured[name]), measured[name]
        if math.isfinite(now):
            self.smoothed[name] = SMOOTHING * earlier + (1 - SMOOTHING) * now
        return self.smoothed.get(name, now)

    def _write(self, row: dict[str, Any]) -> None:
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite) + "\n")
        if self.tensorboard is not None:
            for name, value in finite.items():
                if isinstance(value, float):
                    self.tensorboard.add_scalar(name, value, row["step"])


def _validation_line(progress: checkpoints.Progress, measured: dict[str, Any]) -> str:
    what = f"mean of {measured['averaged']}" if "averaged" in measured else f"step {progress.step:,}"
    is_new = "averaged" in measured or progress.best_step == progress.step
    best = "  best so far" if is_new and measured["score"] == progress.best_score else ""
    return f"{what}: {', '.join(_format_figures(measured))}{best}"


def _describe_cuts(measured: dict[str, Any]) -> list[str]:
    """Say how many outputs of a validation were cut by which setting."""
    counts = {name.removeprefix("cut_"): count for name, count in measured.items() if name.startswith("cut_")}
    return describe_cuts(counts, measured.get("num_outputs", 0))


def _is_perfect(score: float) -> bool:
    """Return whether it is 100%, or no errors: rates of errors are scores below zero."""
    return score == 100 or (score == 0 and math.copysign(1.0, score) < 0)


def _format_figures(measured: dict[str, Any]) -> Iterator[str]:
    """Yield the figures of a validation in words; the loss only if there is no perplexity."""
    hidden = "valid_loss" if "valid_perplexity" in measured else ""
    figures = {name: value for name, value in measured.items() if name.startswith("valid_") and name != hidden}
    return (f"{name_of(name)} {value:.2f}" for name, value in figures.items())


def _format_score(measured: dict[str, Any]) -> str:
    """Return the figure of a validation that is its score, in words."""
    score = measured["score"]
    same = {name: value for name, value in measured.items() if value in (score, -score)}
    return next(_format_figures(same), f"score {score:.2f}")


def _measure_memory(device: torch.device) -> int:
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else psutil.Process().memory_info().rss


def _open_tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("training.tensorboard: TensorBoard is missing; pip install 'saccade[tensorboard]'") from None
    return SummaryWriter(str(folder), purge_step=step + 1)


def _forget_after(path: Path, progress: checkpoints.Progress) -> None:
    """Remove the lines after the checkpoint, which will be written again."""
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [_is_before(line, progress) for line in lines]
    if damaged := [number for number, is_kept in enumerate(kept[:-1], 1) if is_kept is None]:
        what = f"{len(damaged)} lines are" if damaged[1:] else "a line is"
        warnings.warn(f"{path}:{damaged[0]}: {what} damaged and left out", stacklevel=2)
    with replace_file(path) as draft:
        draft.write_bytes(b"".join(itertools.compress(lines, kept)))


def _is_before(line: bytes, progress: checkpoints.Progress) -> bool | None:
    """Tell whether a line is before a checkpoint; None for one that says nothing, as the last one after a kill."""
    try:
        row = json.loads(line)
        return int(row["step"]) <= (progress.step if "loss" in row else progress.validated)
    except (ValueError, KeyError, TypeError):
        return None
