"""`saccade lab`: arguments in, one call out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.lab import digits, lengths

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


@app.command("digits")
def lab_digits(
    recordings: Annotated[Path, typer.Argument(help="A folder of <digit>_<speaker>_<number>.wav, such as FSDD's.")],
    out: Annotated[Path, typer.Argument(help="Where train.tsv, valid.tsv and test.tsv go.")],
    train: Annotated[int, typer.Option(min=1, help="Training strings.")] = digits.NUM_TRAIN,
    valid: Annotated[int, typer.Option(min=1, help="Validation strings.")] = digits.NUM_VALID,
    test: Annotated[int, typer.Option(min=1, help="Test strings.")] = digits.NUM_TEST,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other strings.")] = 1,
) -> None:
    """Write lists of spoken digit strings, for configs/fsdd_digits.yaml."""
    for path in digits.run(recordings, out, train=train, valid=valid, test=test, seed=seed).values():
        typer.echo(path)
