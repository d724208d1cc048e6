"""Trains one run of a comparison in a process of its own, up to a step or to its end, and scores it there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from saccade.datasets.bring import point_to_data
from saccade.errors import NonFiniteLoss, UserError
from saccade.files import replace_file
from saccade.lab.compare import variants
from saccade.runs import config as config_file
from saccade.runs import train as runs
from saccade.runs.events import TrainingEvent
from saccade.runs.load import load_run
from saccade.runs.report import read_facts, read_log
from saccade.tasks import TASKS
from saccade.training.signals import TrainingInterrupted

LOST = 3  # exit code: its loss is not finite
ERRORS = ("loss", "error", "wer", "perplexity", "bits")  # beginnings and ends of scores of which less is better


class Errand(NamedTuple):
    """A run to train: to `stop` steps (None: to its end, and then it is scored)."""

    config: str
    overrides: list[str]
    changes: Mapping[str, Any]
    folder: str
    stop: int | None = None
    score: str | None = None  # the file of its score
    threads: int | None = None


def send(errand: Errand, environment: Mapping[str, str]) -> bool:
    """Do an errand in a child process, which ends with this one; return False if its loss was not finite."""
    command = [sys.executable, "-m", "saccade.lab.compare.worker", json.dumps(errand._asdict())]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert child.stderr is not None
    said = child.stderr.read()  # its input stays open: when it ends, this process has ended
    code = child.wait()
    assert child.stdin is not None
    child.stdin.close()
    if code == 2:
        raise UserError(f"{errand.folder}: {said.strip().splitlines()[-1].removeprefix('saccade: ')}")
    if code == 130:
        raise KeyboardInterrupt
    if code not in (0, LOST):
        raise RuntimeError(f"{errand.folder}: training ended with exit code {code}:\n{said}")
    return code == 0


def work(errand: Errand) -> None:
    """Train, and score what is trained to its end."""
    folder = Path(errand.folder)

    def stop(event: TrainingEvent) -> None:
        if errand.stop is not None and event.kind == "validation" and event.step >= errand.stop:
            event.stop()

    checked = variants.load(Path(errand.config), errand.overrides, errand.changes, folder)
    point_to_data(checked)
    runs.train(checked, folder, Console(quiet=True), threads=errand.threads, callbacks=[stop])
    if errand.score is not None:
        with replace_file(Path(errand.score)) as draft:
            draft.write_text(json.dumps(score(folder)), "utf-8")


def score(folder: Path) -> dict[str, Any]:
    """Score a trained run on its test set, or on its validation set where it has none."""
    config = config_file.load_config(folder / "config.yaml")
    examine = TASKS[config.task].examine
    if examine is None:
        raise UserError(f"task: {config.task!r} given; its runs have no score")
    found = examine(config, load_run(folder))
    if found.tally is not None:
        scored = found.tally.plain()
    else:
        metric = next(name for name, value in found.scores.items() if isinstance(value, float))
        is_error = any(metric.startswith(one) or metric.endswith(one) for one in ERRORS)
        scored = {"metric": metric, "row_NK": None, "combine": "ratio", "is_error": is_error}
    return {
        **scored,
        "score": float(found.scores[scored["metric"]]),
        "set": found.name,
        "parameters": read_facts(folder / "summary.json").get("parameters"),
        "seconds": sum(row.get("seconds") or 0.0 for row in read_log(folder / "log.jsonl")),
    }


def _end_with_parent() -> None:
    """Stop, saving first, when the process that started this one is gone: its end of the input closes then."""

    def wait() -> None:
        os.read(0, 1)  # not sys.stdin's, whose lock a thread must not hold when Python ends
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Do the errand that the only argument describes; exit codes as the command line's."""
    _end_with_parent()
    try:
        work(Errand(**json.loads(sys.argv[1])))
    except UserError as error:
        sys.stderr.write(f"saccade: {error}\n")
        sys.exit(2)
    except NonFiniteLoss as error:
        sys.stderr.write(f"saccade: {error}\n")
        sys.exit(LOST)
    except (TrainingInterrupted, KeyboardInterrupt):
        sys.exit(130)


if __name__ == "__main__":
    main()
