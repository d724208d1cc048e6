"""Does attention help with long sentences? Trains configs with several seeds and scores them by source length.

Without attention a whole sentence has to fit one vector, and BLEU falls with its length (Bahdanau 2015, figure 2; Luong
2015, figure 6).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from saccade.errors import UserError
from saccade.files import replace_file
from saccade.inspection.draw import by_class
from saccade.runs import config as config_file
from saccade.runs import process, report
from saccade.runs.load import load_run
from saccade.tasks.translate import task

FEWEST_PAIRS = 10  # a class of fewer says nothing


class Outcome(NamedTuple):
    """The BLEU of one trained run on the test set, by class of source length, and the minutes it took."""

    config: str
    seed: int
    bleu: float
    by_length: dict[str, float]
    minutes: float


def run(configs: Sequence[Path], *, seeds: int, jobs: int, out: Path, console: Console) -> list[Outcome]:
    """Train every config with every seed, `jobs` at a time; write a table, a picture and a JSON file of the scores."""
    tests = {path: config_file.load_config(path).data.test for path in configs}
    for path, test in tests.items():
        if test is None or test != tests[configs[0]]:
            what = "is missing" if test is None else f"is another than that of {configs[0]}"
            raise UserError(f"{path}: data.test {what}; the models are compared on it")
    wanted = list(product(configs, range(1, seeds + 1)))
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(lambda pair: _outcome(pair[0], pair[1], out, console), wanted))
    console.print(_table(outcomes))
    with replace_file(out / "lengths.json") as draft:
        draft.write_text(json.dumps([outcome._asdict() for outcome in outcomes], indent=1), "utf-8")
    _draw(outcomes, out / "lengths.png")
    console.print(f"BLEU by source length: {out / 'lengths.png'}")
    return outcomes


def _outcome(config: Path, seed: int, out: Path, console: Console) -> Outcome:
    folder = out / f"{config.stem}-{seed}"
    process.train_in_process([str(config), f"seed={seed}"], folder)
    minutes = sum(row.get("seconds", 0.0) for row in report.read_log(folder / "log.jsonl")) / 60
    found = task.outputs(config_file.load_config(folder / "config.yaml"), load_run(folder))
    console.print(f"{folder.name}: BLEU {found.scores.bleu:.2f} after {minutes:.1f} minutes")
    by_length = {row.label: row.scores.bleu for row in found.by_length if row.num_pairs >= FEWEST_PAIRS}
    return Outcome(config.stem, seed, found.scores.bleu, by_length, minutes)


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(header_style="bold", box=None, pad_edge=False)
    for heading in ("config", "BLEU", "of each seed"):
        table.add_column(heading, no_wrap=True)
    for name, rows in _by_config(outcomes).items():
        each = " ".join(f"{row.bleu:.2f}" for row in rows)
        table.add_row(name, f"{statistics.mean(row.bleu for row in rows):.2f}", each)
    return table


def _draw(outcomes: Sequence[Outcome], path: Path) -> None:
    labels = list(outcomes[0].by_length)
    means = {
        name: [statistics.mean(row.by_length[label] for row in rows) for label in labels]
        for name, rows in _by_config(outcomes).items()
    }
    by_class.to_file(means, path, classes=labels, across="words in the source", up="BLEU, mean of the seeds")


def _by_config(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    return {name: [row for row in outcomes if row.config == name] for name in dict.fromkeys(o.config for o in outcomes)}
