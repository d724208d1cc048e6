"""Trains runs of a comparison in a process of their own, up to a step or to their end, and scores them there."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from rich.console import Console

from saccade.data.kept import keep_what_is_read
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

QUIET = Console(quiet=True)
ERRORS = ("loss", "error", "wer", "perplexity", "bits")  # beginnings and ends of scores of which less is better


class Errand(NamedTuple):
    """A run to train: to `stop` steps (None: to its end, and then it is scored)."""

    config: str
    overrides: Sequence[str]
    changes: Mapping[str, Any]
    folder: str
    stop: int | None = None
    score: str | None = None  # the file of its score
    threads: int | None = None
    tokenizers: str | None = None  # the folder of those that all runs have


def train(errand: Errand) -> bool:
    """Train, and score what is trained to its end; return False if its loss is not finite."""
    folder = Path(errand.folder)

    def stop(event: TrainingEvent) -> None:
        if errand.stop is not None and event.kind == "validation" and event.step >= errand.stop:
            event.stop()

    checked = variants.load(Path(errand.config), errand.overrides, errand.changes, folder)
    point_to_data(checked)
    if errand.tokenizers is not None:
        _take_tokenizers(Path(errand.tokenizers), folder)
    try:
        runs.train(checked, folder, QUIET, threads=errand.threads, callbacks=[stop], reports=False)
    except NonFiniteLoss:
        return False
    if errand.score is not None:
        with replace_file(Path(errand.score)) as draft:
            draft.write_text(json.dumps(score(folder)), "utf-8")
    return True


def _take_tokenizers(shared: Path, folder: Path) -> None:
    """Give a run that has none yet the tokenizers that all have."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in shared.glob("tokenizer.*"):
        if not (folder / one.name).exists():
            with replace_file(folder / one.name) as draft:
                shutil.copyfile(one, draft)


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


def _listen() -> SimpleQueue[bytes]:
    """Read what is to be done. When it ends, the process that started this one is gone: stop, saving first."""
    given = SimpleQueue[bytes]()

    def listen() -> None:
        with open(0, "rb", buffering=0, closefd=False) as lines:  # not sys.stdin, whose lock would be held at the end
            for line in lines:
                given.put(line)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()
    return given


def _do(what: str, *given: Any) -> dict[str, Any]:
    try:
        return {"found": train(Errand(*given)) if what == "train" else variants.outline(*given)}
    except UserError as error:
        return {"refused": str(error)}


def main() -> None:
    """Do what comes, a line of JSON each, and reply with one; what libraries print goes to standard error."""
    given = _listen()
    with keep_what_is_read(), os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)
        while True:
            try:
                found = _do(*json.loads(given.get()))
            except (TrainingInterrupted, KeyboardInterrupt):
                sys.exit(130)
            replies.write(json.dumps(found) + "\n")
            replies.flush()
            gc.collect()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
