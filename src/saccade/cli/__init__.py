"""The command line: a file a command, arguments in, one call out."""

from __future__ import annotations

import platform
import sys
from typing import Annotated

import torch
import typer

import saccade
from saccade.cli import bench, config, demo, evaluate, lab, look, predict, serve, terminal, train
from saccade.errors import UserError
from saccade.training.loop import NonFiniteLoss

app = typer.Typer(
    help="Attention models you can train, run fast and look into.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo.demo, train.train, predict.predict, evaluate.evaluate, look.look, serve.serve):
    app.command()(command)
app.add_typer(bench.app, name="bench")
app.add_typer(lab.app, name="lab")
app.add_typer(config.app, name="config")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"saccade {saccade.__version__} (torch {torch.__version__}, Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the `saccade` command: exit code 0 fine, 2 the user's mistake, 1 ours."""
    terminal.escape_unknown_letters()
    try:
        app()
    except UserError as error:
        _fail(str(error), 2)
    except NonFiniteLoss as error:
        _fail(str(error), 1)
    except BrokenPipeError:
        terminal.forget_output()
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror or error}{where}", 2)


def _fail(message: str, code: int) -> None:
    """One clear line, and the exit code."""
    typer.echo(f"saccade: {message}", err=True)
    sys.exit(code)
