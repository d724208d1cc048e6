"""`saccade compare`: arguments in, one call out."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from rich.console import Console

from saccade.cli import terminal
from saccade.cli.flags import Threads
from saccade.errors import UserError
from saccade.lab.compare import run as comparisons
from saccade.runs.recipes import find_config


def compare(
    config: Annotated[Path, typer.Argument(help="The config: a YAML file, or the name of a recipe.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.field=value changes a field for all; repeatable.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(help="section.field=value,value,...: what is compared; repeatable: then all combinations."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs of each.")] = 5,
    first: Annotated[int, typer.Option("--seed", min=0, help="The first seed.")] = 1,
    rates: Annotated[
        str, typer.Option(help="Learning rates to choose from for each, as multiples of the config's; 1: as it is.")
    ] = "0.5,1,2,4",
    match: Annotated[
        str | None, typer.Option(help="A field, say model.width, that gives each the parameters of the first.")
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, max=1, help="How far numbers of parameters may differ.")] = 0.02,
    equal: Annotated[
        Literal["steps", "time"],
        typer.Option(help="What all have the same of: steps, or time."),
    ] = "steps",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time. (default: 1, or one a GPU)")] = None,
    threads: Threads = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Begin no run after so many minutes; the table is of whole seeds.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder. (default: runs/compare/<name of the config>)")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train variants of a config with the same budget, and say which is better, and how sure that is."""
    if not vary:
        raise UserError("--vary: missing; say what is compared, for example --vary model.score=dot,additive")
    config = find_config(config)
    jobs = jobs or max(1, torch.cuda.device_count())
    options = comparisons.ComparisonOptions(
        config=config,
        overrides=overrides or (),
        vary=vary,
        seeds=seeds,
        first=first,
        factors=_read_factors(rates),
        match=match,
        tolerance=tolerance,
        jobs=jobs,
        threads=threads or max(1, (os.cpu_count() or 1) // jobs),
        minutes=math.inf if minutes is None else minutes,
        equal=equal,
    )
    folder = Path("runs/compare") / config.stem if out is None else out
    with terminal.quiet():
        found = comparisons.run(options, folder, Console(quiet=as_json))
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))


def _read_factors(given: str) -> list[float]:
    try:
        factors = [float(part) for part in given.split(",")]
    except ValueError:
        factors = []
    if not factors or not all(0 < factor < float("inf") for factor in factors) or len({*factors}) < len(factors):
        raise UserError(f"--rates: {given!r} given; allowed: different positive numbers with commas between them")
    return factors
