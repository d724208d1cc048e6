"""`saccade lab`: arguments in, one call out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from saccade.cli import terminal
from saccade.errors import UserError
from saccade.lab import check, digits, lengths
from saccade.lab import run as experiments
from saccade.lab.experiment import Experiment
from saccade.lab.table import EXPERIMENTS

app = typer.Typer(help="Try a claim, run an experiment, or prepare its data.", invoke_without_command=True)


@app.callback()
def lab(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the experiments, or run one."""
    if context.invoked_subcommand is not None:
        return
    if as_json:
        rows = [{"name": one.name, "question": one.question, "minutes": one.minutes} for one in EXPERIMENTS.values()]
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table.grid(padding=(0, 2))
    for one in EXPERIMENTS.values():
        table.add_row(one.name, f"{one.question}\n[dim]{one.claim}\n{one.minutes} on two CPU cores[/dim]")
    Console(highlight=False).print(table)
    typer.echo(
        "\nsaccade lab NAME tries one: a picture, result.json, a verdict. Others: check, lengths, digits (see --help)."
    )


def _command(experiment: Experiment) -> Callable[..., None]:
    def command(
        seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = experiment.seeds,
        first: Annotated[int, typer.Option("--seed", min=0, help="The first seed.")] = 1,
        full: Annotated[bool, typer.Option("--full", help="The full size, which takes much longer.")] = False,
        out: Annotated[Path | None, typer.Option(help="The folder for the result.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    ) -> None:
        folder = Path("runs/lab") / experiment.name if out is None else out
        console = Console(quiet=as_json)
        with terminal.quiet():
            result = experiments.run(experiment, seeds=seeds, first=first, is_full=full, out=folder, console=console)
        if as_json:
            typer.echo(json.dumps(result, ensure_ascii=False))

    command.__doc__ = experiment.question
    return command


for _one in EXPERIMENTS.values():
    app.command(_one.name)(_command(_one))


@app.command("check")
def lab_check(
    file: Annotated[Path, typer.Argument(help="A Python file with a function attend(query, key, value, mask=None).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Judge your own attend, from the exercises of the course, against the reference."""
    verdicts = list(check.judge(check.load(file), file))
    if as_json:
        typer.echo(json.dumps([verdict._asdict() for verdict in verdicts], ensure_ascii=False))
    else:
        typer.echo("\n".join(verdict.line() for verdict in verdicts))
    wrong = sum(verdict.problem is not None for verdict in verdicts)
    if wrong:
        raise UserError(f"{file}: {wrong} of {len(verdicts)} properties {'is' if wrong == 1 else 'are'} wrong")
    if not as_json:
        typer.echo(f"{file}: all {len(verdicts)} properties hold")


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
