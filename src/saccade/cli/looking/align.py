"""`saccade look --align`: from files to links in a file, with the heads that align best."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.bulk.shards import fetch, find_inputs
from saccade.bulk.work import AlignWork
from saccade.cli import bulk, terminal
from saccade.cli.bulk import BulkFlags
from saccade.data.text.corpus import Pair
from saccade.errors import UserError
from saccade.files import replace_file
from saccade.inspection.align import choose
from saccade.inspection.align.aligner import find_coverage
from saccade.inspection.align.choose import AligningRun, AlignReport, describe_head
from saccade.inspection.align.heads import HeadScore, find_best_head
from saccade.inspection.align.links import SYMMETRIZERS, AlignmentScores, Links, format_pharaoh
from saccade.runs.load import load_run
from saccade.tasks.base import Predictor

ENOUGH = 1000  # pairs to choose heads by, where there is no gold
SYMMETRIZE = "grow-diag-final-and"
HOW = "--gold or --reverse would choose better"


@final
@dataclass(frozen=True)
class AlignJob:
    """The files to align, and the options of `saccade look --align`."""

    source: Path | None
    target: Path | None = None
    gold: Path | None = None
    reverse: Path | None = None  # a run of the opposite direction
    symmetrize: str | None = None
    output: Path | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.source is None:
            raise UserError("--input: none given; allowed with --align: a file of source texts, or one with both sides")
        if self.symmetrize is not None and self.reverse is None:
            raise UserError("--symmetrize: given without --reverse, a run of the opposite direction")
        if self.symmetrize is not None and self.symmetrize not in SYMMETRIZERS:
            raise UserError(f"--symmetrize: {self.symmetrize!r} given; allowed: {', '.join(SYMMETRIZERS)}")

    def pairs(self, predictor: Predictor) -> Iterator[Pair]:
        """Read the pairs as the model's task does."""
        assert self.source is not None
        return predictor.read_pairs(self.source, self.target)


def run(model: Path, job: AlignJob, console: Console) -> None:
    """Choose heads if that is asked for, then write the links of every pair."""
    if (runs := choose_runs(model, job, console)) is not None:
        found = choose.make_links(runs.runs, runs.read(), job.symmetrize or SYMMETRIZE)
        _write(found, job)


def run_many(
    model: Path, job: AlignJob, patterns: tuple[str | None, str | None], output: str | None, flags: BulkFlags
) -> None:
    """Align the pairs of many files; where no head is chosen, those of the first file choose it for all."""
    if job.gold is not None:
        raise UserError("--gold: given with --on; choose the head by gold first, without it: the run keeps it")
    execute = bulk.choose_executor(flags, None, None)
    named = {field: pattern for field, pattern in zip(("--input", "--target"), patterns, strict=True) if pattern}
    firsts = [find_inputs(field, pattern)[0].url for field, pattern in named.items()]
    with fetch(firsts) as paths:
        source, *other = paths
        chosen = choose_runs(model, replace(job, source=source, target=other[0] if other else None), Console())
    assert chosen is not None
    heads = tuple((run.folder.resolve(), run.head) for run in chosen.runs if run.head is not None)
    bulk.run(AlignWork(heads, job.symmetrize or SYMMETRIZE, None, job.as_json), named, output, execute)


class ChosenRuns(NamedTuple):
    """Runs with the heads that align, and what reads the pairs."""

    runs: list[AligningRun]
    read: Callable[[], Iterator[Pair]]


def choose_runs(model: Path, job: AlignJob, console: Console) -> ChosenRuns | None:
    """Choose the heads; None: that is all that is wanted."""
    if job.reverse is not None and job.reverse.resolve() == model.resolve():
        raise UserError(f"--reverse: {job.reverse} given, the run itself; wanted: one of the opposite direction")
    loaded: dict[Path, Predictor] = {folder: load_run(folder) for folder in (model, job.reverse) if folder is not None}
    runs = [AligningRun(folder, one.word_attention(), one.traits.aligning).check() for folder, one in loaded.items()]
    read = partial(job.pairs, loaded[model])
    if job.gold is not None:
        runs, report = choose.choose_by_gold(runs, *choose.read_with_gold(read(), job.gold), _watch)
        if job.as_json:
            typer.echo(json.dumps(report.plain()))
        else:
            _show(report, console)
        if job.output is None:
            return None
    elif any(one.head is None for one in runs):
        some = list(itertools.islice(read(), ENOUGH))
        runs = _choose_by_agreement(runs, some) if len(runs) == 2 else [_choose_by_coverage(runs[0], some)]
    return ChosenRuns(runs, read)


def _watch(pairs: list[Pair]) -> Iterator[Pair]:
    return terminal.count_outputs(iter(pairs), len(pairs), hidden=False)


def _choose_by_agreement(runs: list[AligningRun], pairs: list[Pair]) -> list[AligningRun]:
    runs, found = choose.choose_by_agreement(runs, pairs)
    for one, head in zip(runs, (found.forward, found.backward), strict=True):
        typer.echo(f"{one.folder}: {describe_head(head)}", err=True)
    typer.echo(f"They agree most: F1 {found.f1:.3f} of each other on {len(pairs):,} pairs.", err=True)
    return runs


def _choose_by_coverage(run: AligningRun, pairs: list[Pair]) -> AligningRun:
    """Choose a head by coverage, where there is nothing better to choose by; nothing is kept."""
    found = find_coverage(run.attention, pairs)
    what = f"its links reach most source words ({found.share:.0%} of {len(pairs):,} pairs)"
    typer.echo(f"{run.folder}: {describe_head(found.head)}, as {what}; {HOW}", err=True)
    return run._replace(head=found.head)


def _write(found: Iterator[Links], job: AlignJob) -> None:
    """Write a line a pair, to the file when all of it is there, or as it comes to the standard output."""
    is_shown = job.output is None and sys.stdout.isatty()
    watched = terminal.count_outputs(found, terminal.num_lines(job.source), hidden=is_shown)
    lines = map(_as_json, watched) if job.as_json else map(format_pharaoh, watched)
    if job.output is None:
        for line in lines:
            typer.echo(line)
        return
    with replace_file(job.output) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def _as_json(found: Links) -> str:
    return json.dumps({"links": sorted(found)})


def _show(report: AlignReport, console: Console) -> None:
    for folder, scores in report.heads.items():
        console.print(f"\n{escape(str(folder))}: AER of every head, in percent", highlight=False)
        console.print(_grid(scores))
        chosen = find_best_head(scores)
        console.print(f"Best: {describe_head(chosen.head)}; {_percent(chosen.scores)}.", highlight=False)
    for name, together in report.together.items():
        console.print(f"{name:20} {_percent(together)}", highlight=False)


def _percent(scores: AlignmentScores) -> str:
    aer, precision, recall = (100 * value for value in scores.plain().values())
    return f"AER {aer:.1f}, precision {precision:.1f}, recall {recall:.1f}"


def _grid(scores: Sequence[HeadScore]) -> Table:
    """Make a row for each layer and step, and a column for each head and their mean."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    lowest = find_best_head(scores).scores.aer
    columns = dict.fromkeys("mean" if score.head.head is None else str(score.head.head) for score in scores)
    for heading in ("layer", "step", *columns):
        table.add_column(heading, justify="right")
    for (layer, shift), row in itertools.groupby(scores, key=lambda score: (score.head.layer, score.head.shift)):
        errors = [score.scores.aer for score in row]
        cells = [f"[bold green]{100 * aer:.1f}[/]" if aer == lowest else f"{100 * aer:.1f}" for aer in errors]
        table.add_row(str(layer), "reads" if shift else "writes", *cells)
    return table
