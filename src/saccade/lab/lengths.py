"""Does attention help where sentences are long? Configs over several seeds, by source length.

Without attention a whole sentence has to fit one vector, and BLEU falls with its length (Bahdanau 2015, figure 2; Luong
2015, figure 6).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from saccade.config import build, reporting
from saccade.config import load as config_file
from saccade.data.files import replacing
from saccade.data.mistakes import Mistake
from saccade.inspection import classes

FEWEST_PAIRS = 10  # a class of fewer says nothing


class Outcome(NamedTuple):
    """One trained run: BLEU of the test set, by class of source length, and the minutes it took."""

    config: str
    seed: int
    bleu: float
    by_length: dict[str, float]
    minutes: float


def run(configs: Sequence[Path], *, seeds: int, jobs: int, out: Path, console: Console) -> list[Outcome]:
    """Train every config with every seed, `jobs` at a time; score them; a table, a picture and a JSON file."""
    for path in configs:
        if config_file.load(path).data.test is None:
            raise Mistake(f"{path}: data.test is missing; it is what the models are compared on")
    wanted = list(product(configs, range(1, seeds + 1)))
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(lambda pair: _outcome(pair[0], pair[1], out, console), wanted))
    console.print(_table(outcomes))
    _draw(outcomes, out / "lengths.png")
    with replacing(out / "lengths.json") as draft:
        draft.write_text(json.dumps([outcome._asdict() for outcome in outcomes], indent=1), "utf-8")
    console.print(f"BLEU by source length: {out / 'lengths.png'}")
    return outcomes


def _outcome(config: Path, seed: int, out: Path, console: Console) -> Outcome:
    folder, started = out / f"{config.stem}-{seed}", time.monotonic()
    command = [sys.executable, "-c", "from saccade.cli import main; main()", "train", str(config), f"seed={seed}"]
    done = subprocess.run([*command, "--run", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Mistake(f"{folder}: {done.stderr.strip().removeprefix('saccade: ') or f'exit code {done.returncode}'}")
    minutes = (time.monotonic() - started) / 60
    found = reporting.examined(config_file.load(folder / "config.yaml"), build.load_run(folder))
    console.print(f"{folder.name}: BLEU {found.scores.bleu:.2f} after {minutes:.1f} minutes")
    by_length = {row.label: row.bleu for row in found.by_length if row.num_pairs >= FEWEST_PAIRS}
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
    classes.to_file(means, path, classes=labels, across="words in the source", up="BLEU, mean of the seeds")


def _by_config(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    return {name: [row for row in outcomes if row.config == name] for name in dict.fromkeys(o.config for o in outcomes)}
