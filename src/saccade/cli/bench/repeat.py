"""`saccade bench repeat`: arguments in, one call out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.bench.choices import Device, check_device, parse_names
from saccade.bench.repeat.cases import CASES
from saccade.bench.repeat.trainings import RepeatPlan, RepeatRow, repeat, repeat_all
from saccade.errors import UserError


def bench_repeat(
    config: Annotated[
        Path | None, typer.Argument(help="The config. (default: a short training of every kind of network)")
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="section.field=value changes a field of it.")] = None,
    only: Annotated[str | None, typer.Option(help=f"Only these kinds, with commas: {', '.join(CASES)}.")] = None,
    times: Annotated[int, typer.Option(min=2, help="Number of equal trainings of each.")] = 6,
    steps: Annotated[int, typer.Option(min=2, help="Number of steps of a training.")] = 20,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of a training.")] = 2,
    busy: Annotated[bool, typer.Option("--busy", help="Run every second one beside a busy process.")] = False,
    free: Annotated[
        bool, typer.Option("--free", help="Let sums be taken in any order: what it costs to repeat, and why.")
    ] = False,
    device: Annotated[Device, typer.Option(help="The device to train on.")] = Device.cpu,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train one config many times and compare the bytes of model and checkpoint. Exit code 1 if they differ."""
    check_device(device)
    if config is not None and only is not None:
        raise UserError("--only: given with a config; it chooses from the trainings of every kind")
    plan = RepeatPlan(times, steps, threads, device.value, is_busy=busy, is_free=free, overrides=overrides or ())
    names, say = parse_names("only", only, CASES), Console(stderr=True).print
    found = repeat_all(names, plan, say) if config is None else iter([repeat(config, plan, say=say)])
    rows = []
    for row in found:
        rows.append(row)
        if not as_json:
            typer.echo(_line(row))
    if as_json:
        typer.echo(json.dumps([row.as_dict() for row in rows], indent=1))
    raise typer.Exit(0 if all(row.is_same for row in rows) else 1)


def _line(row: RepeatRow) -> str:
    """Tell in one line how many different files there were, and how fast it went."""
    plan = row.plan
    place = f"{plan.threads} thread{'s' if plan.threads > 1 else ''}" if plan.device == "cpu" else plan.device
    what = f"{row.name}: {plan.times} trainings of {plan.steps} steps, {place}"
    files = f"{len(row.models)} different models ({', '.join(map(str, row.models))})" if row.models[1:] else "one model"
    last = f"{len(row.checkpoints)} checkpoints" if row.checkpoints[1:] else "one checkpoint"
    rates = {"alone": row.rate(was_busy=False), "beside a busy process": row.rate(was_busy=True)}
    speed = ", ".join(f"{rate:.1f} steps a second {how}" for how, rate in rates.items() if rate is not None)
    return f"{what}: {files}, {last}; {speed}"
