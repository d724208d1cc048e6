"""`--on`: the same commands for many files, here or on Ray, written to a folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saccade.cli import terminal
from saccade.errors import UserError

if TYPE_CHECKING:
    from saccade.bulk.job import Executor, ShardPlan
    from saccade.bulk.shards import Shard
    from saccade.bulk.work import PredictWork, Work, WrittenShard
    from saccade.export.choice import EngineChoice

HERE, RAY = "local", "ray"


@dataclass(frozen=True)
class BulkFlags:
    """Flags that say whether many files are answered, and where."""

    on: Annotated[
        str | None,
        typer.Option(
            help="Answer many files, --input being a path, folder, glob or URL (s3://...), into the folder --output: "
            "local (here, one after the other), ray, or ray://HOST:PORT. The same command goes on where it was stopped."
        ),
    ] = None
    workers: Annotated[
        int | None, typer.Option(min=1, help="With --on ray: processes that load the model. (default: all that fit)")
    ] = None


def run(work: Work, patterns: Mapping[str, str | None], output: str | None, execute: Executor) -> None:
    """Do the work for all files that aren't written yet, and say how it goes."""
    from saccade.bulk import job
    from saccade.bulk.shards import find_inputs, hold_folder

    output = need_output(output)
    inputs = [find_inputs(field, pattern) for field, pattern in patterns.items() if pattern is not None]
    with hold_folder(output):
        _run(work, job.plan(work, inputs, output), execute)


def need_output(output: str | None) -> str:
    """Return the folder that is written."""
    if output is None:
        raise UserError("--output: none given; with --on a folder is written, of the same names as the files")
    return output


def _run(work: Work, plan: ShardPlan, execute: Executor) -> None:
    from saccade.bulk.work import Counts

    total, before = Counts(), len(plan.shards) - len(plan.left)
    if before:
        typer.echo(f"{before:,} of {len(plan.shards):,} files are written already", err=True)
    started = time.monotonic()
    with terminal.quiet():
        for number, (shard, counts) in enumerate(execute(work, plan.left) if plan.left else (), 1):
            total.add(counts)
            rate = total.num_lines / (time.monotonic() - started)
            place = f"{before + number:,} of {len(plan.shards):,} files"
            typer.echo(f"{shard.name}: {counts.num_lines:,} lines ({place}; {rate:,.0f} lines a second)", err=True)
            for said in counts.warnings:
                typer.echo(f"saccade: {said}", err=True)
    for said in (*total.cuts.describe(), *total.insisted.describe()):
        typer.echo(f"saccade: {said}", err=True)


def predicting(
    runs: Sequence[Path],
    engine: EngineChoice,
    device: str | None,
    threads: int | None,
    glossary: Path | None,
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> PredictWork:
    """Describe what `predict` does, for processes that are in other folders."""
    from saccade.bulk.work import PredictWork

    chosen = engine if engine.shortlist is None else engine._replace(shortlist=engine.shortlist.resolve())
    terms = None if glossary is None else glossary.resolve()
    return PredictWork(tuple(run.resolve() for run in runs), chosen, device, threads, terms, options, as_json)


def choose_executor(flags: BulkFlags, threads: int | None, device: str | None) -> Executor:
    """Return what does the work."""
    from saccade.bulk import job, ray_cluster

    if flags.on == HERE:
        if flags.workers is not None:
            raise UserError(
                f"--workers: {flags.workers} given with --on {HERE}, which is one process; allowed: --on ray"
            )
        return job.run_locally
    if flags.on != RAY and not str(flags.on).startswith(f"{RAY}://"):
        raise UserError(f"--on: {flags.on!r} given; allowed: {HERE}, {RAY}, {RAY}://HOST:PORT")

    def execute(work: Work, shards: Sequence[Shard]) -> Iterator[WrittenShard]:
        return ray_cluster.run_on_ray(
            work,
            shards,
            address=None if flags.on == RAY else flags.on,
            workers=flags.workers,
            threads=threads or 1,
            wants_gpu=device != "cpu",
        )

    return execute


def refuse_without(flags: BulkFlags, output: str | None) -> None:
    """Refuse what has an effect with --on alone."""
    for name, given in (("--output", output), ("--workers", flags.workers)):
        if given is not None:
            raise UserError(f"{name}: {given} given without --on, which answers many files")


def refuse_with_many(given: Mapping[str, object]) -> None:
    """Refuse what is about one file, or shown in a terminal."""
    for name, value in given.items():
        if value is not None:
            raise UserError(f"{name}: given with --on, which answers the lines of files")
