"""`saccade lab`: arguments in, one call out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.lab import digits, lengths

app = typer.Typer(help="Run an experiment, or prepare its data.", no_args_is_help=True)


@app.command("lengths")
def lab_lengths(
    configs: Annotated[list[Path], typer.Argument(help="Configs with data.test; see configs/multi30k_*.yaml.")],
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs of each config.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Number of runs at the same time.")] = 1,
    out: Annotated[Path, typer.Option(help="The folder for the runs and the picture.")] = Path("runs/lengths"),
) -> None:
    """Train several configs over several seeds, and draw BLEU by source length."""
    lengths.run(configs, seeds=seeds, jobs=jobs, out=out, console=Console())


@app.command("digits")
def lab_digits(
    recordings: Annotated[
        Path, typer.Argument(help="A folder of files <digit>_<speaker>_<number>.wav, such as FSDD's.")
    ],
    out: Annotated[Path, typer.Argument(help="The folder for train.tsv, valid.tsv and test.tsv.")],
    train: Annotated[int, typer.Option(min=1, help="Number of training strings.")] = digits.NUM_TRAIN,
    valid: Annotated[int, typer.Option(min=1, help="Number of validation strings.")] = digits.NUM_VALID,
    test: Annotated[int, typer.Option(min=1, help="Number of test strings.")] = digits.NUM_TEST,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the strings.")] = 1,
) -> None:
    """Write lists of spoken digit strings for configs/fsdd_digits.yaml."""
    for path in digits.run(recordings, out, train=train, valid=valid, test=test, seed=seed).values():
        typer.echo(path)
