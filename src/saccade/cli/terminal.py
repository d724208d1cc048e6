"""Progress, warnings and the end of a command in the terminal."""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from saccade.errors import suggest

Found = TypeVar("Found")
Misuse: Any = typer.BadParameter.__mro__[1]  # UsageError: click's or a copy of it, as the version of Typer has it


def num_lines(path: Path | None) -> int | None:
    """Count the lines of a plain file; of a pipe, a compressed file or a CSV file nobody knows before the end."""
    if path is None or path.suffix.lower() in (".gz", ".csv") or not path.is_file():
        return None
    with path.open("rb") as file:
        return sum(1 for _ in file)


def count_outputs(found: Iterator[Found], total: int | None, *, hidden: bool) -> Iterator[Found]:
    """Pass outputs on and say how many there were: a bar in a terminal, elsewhere a line every ten seconds."""
    from saccade.training.rate import TELL_EVERY  # here, so that --help loads nothing of training

    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
    disabled = hidden or not console.is_terminal
    bar = Progress(*columns, console=console, disable=disabled, redirect_stdout=False)  # outputs stay on stdout
    started = told = time.monotonic()
    with bar:
        task = bar.add_task("", total=total, said="")
        for number, one in enumerate(found, 1):
            yield one
            now = time.monotonic()
            if now - told >= (TELL_EVERY if disabled else 0.2) or number == total:
                of = "" if total is None else f" of {total:,}"
                said = f"{number:,}{of} lines, {_per_second(number / (now - started))} a second"
                bar.update(task, completed=number, said=said)
                if disabled and not hidden and now - told >= TELL_EVERY:
                    typer.echo(said, err=True)
                told = now


@contextmanager
def show_steps() -> Iterator[Callable[[str], None]]:
    """Show what is being done: in a terminal as it changes, elsewhere in a line every ten seconds."""
    from saccade.training.rate import Pace  # here, so that --help loads nothing of training

    console, pace = Console(stderr=True), Pace()
    with console.status("") as status:

        def say(what: str) -> None:
            status.update(f"{what} ...")
            if not console.is_terminal and pace.is_due():
                typer.echo(f"{what} ...", err=True)

        yield say


def _per_second(rate: float) -> str:
    """Write a rate in whole numbers, and a small one with two figures."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


@contextmanager
def quiet() -> Iterator[None]:
    """Shorten warnings to a line; Ctrl-C, and a reader who has seen enough, end the command without a fuss."""
    try:
        with shorten_warnings():
            yield
    except KeyboardInterrupt:
        typer.echo("saccade: interrupted", err=True)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        forget_output()
        raise typer.Exit from None


@contextmanager
def shorten_warnings() -> Iterator[None]:
    """Write warnings as one line each."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"saccade: {message}", err=True)
        yield


def explain_misuse(error: Any) -> str:
    """Say in one line what is wrong with a command's words, and what is allowed; nothing where its help was shown."""
    message = " ".join(error.format_message().split()).removesuffix(".").replace(": Value error, ", ": ")
    if not message or error.ctx is None:
        return message
    command, usage = error.ctx.command, " ".join(error.ctx.get_usage().split())
    if message.startswith("No such option"):
        names = [name for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")]
        message = f"no option {error.option_name}{suggest(error.option_name, [*names, '--help'])}"
    elif message.startswith("No such command"):
        unknown = message.split("'")[1]
        message = f"no command {unknown}{suggest(unknown, command.list_commands(error.ctx))}"
    elif message.startswith(("Missing", "Got unexpected")):
        message = f"{message} ({usage})"
    where = error.ctx.command_path.removeprefix("saccade").strip()
    return f"{where}: {message[0].lower()}{message[1:]}" if where else message


def escape_unknown_letters() -> None:
    """Let standard output escape what its encoding lacks (ASCII has no accents), as standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def forget_output() -> None:
    """Send the rest of the output to nowhere, when its reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
