"""`saccade lab`: arguments in, one call out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.lab import lengths

app = typer.Typer(help="Experiments that end in a picture.", no_args_is_help=True)


@app.command("lengths")
def lab_lengths(
    configs: Annotated[list[Path], typer.Argument(help="Configs with a data.test; see configs/multi30k_*.yaml.")],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each config.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the runs and the picture go.")] = Path("runs/lengths"),
) -> None:
    """Train several configs over several seeds, and draw BLEU by source length for all of them."""
    lengths.run(configs, seeds=seeds, jobs=jobs, out=out, console=Console())
