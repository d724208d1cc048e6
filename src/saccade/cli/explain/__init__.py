"""`saccade explain`: which engine suits a run here, and why."""

from __future__ import annotations

import json
from typing import Annotated, get_args

import typer

from saccade.cli.flags import Device, RunFolder, Threads, set_threads
from saccade.runs.load import load_run


def explain(
    model: RunFolder,
    threads: Threads = None,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which engine suits a run on this machine, and why the others can't run it."""
    from saccade.export.choice import EngineName
    from saccade.export.engine import choose_engine, explain_engines

    set_threads(threads)
    predictor = load_run(model, device=device)
    chosen, reason = choose_engine(predictor)
    engines = explain_engines(predictor)
    if as_json:
        typer.echo(json.dumps({"auto": chosen, "reason": reason, "engines": engines}, ensure_ascii=False))
        return
    typer.echo(f"auto takes {chosen}: {reason}")
    for name in get_args(EngineName):
        if name in engines:
            typer.echo(f"{name:<12} {engines[name] or 'can run it'}")
