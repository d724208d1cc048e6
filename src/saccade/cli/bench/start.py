"""`saccade bench start`: arguments in, one call out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.bench import start, tables
from saccade.bench.choices import parse_names

ENGINES = ("auto", "torch", "native", "ctranslate2", "onnx")


def bench_start(
    run: Annotated[Path | None, typer.Argument(help="A run of text to text, which then answers a sentence.")] = None,
    engines: Annotated[str, typer.Option(help="With a run: the engines that answer, with commas.")] = "auto,torch",
    rounds: Annotated[int, typer.Option(min=1, help="Starts of each that count; the median is shown.")] = 5,
    imports: Annotated[bool, typer.Option("--imports", help="Also show which packages take how long.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how long saccade takes to start: its help, its import beside torch's, the first answer of a run."""
    commands = start.list_commands(run, parse_names("engines", engines, ENGINES))
    rows = start.measure(commands, rounds, Console(stderr=True).print)
    profile = start.profile_imports(list(commands.values())[-1]) if imports else []
    if as_json:
        found = {"rows": [row._asdict() for row in rows], "imports": [row._asdict() for row in profile]}
        typer.echo(json.dumps(found, indent=1))
        return
    console = Console()
    console.print(tables.of_starts(rows))
    if imports:
        console.print(f"\nimports of {list(commands)[-1]}:")
        console.print(tables.of_imports(profile))
