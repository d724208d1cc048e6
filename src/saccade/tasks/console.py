"""Progress and messages while data are made ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.status import Status

from saccade.inspection.draw.heatmap import can_show
from saccade.training.rate import Pace

DOTS = "⠋"  # of the wheel that rich turns where there are more letters than ASCII's
T = TypeVar("T")


def show_progress(console: Console, rows: Iterable[T], what: str) -> Iterator[T]:
    """Pass rows on and count them: a bar on a terminal, elsewhere a line now and then."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"))
        with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
            yield from bar.track(rows, description=what)
        return
    pace = Pace()
    for number, row in enumerate(rows, 1):
        yield row
        if number % 1000 == 0 and pace.is_due():
            say(console, f"{what}: {number:,} so far")


def busy(console: Console, what: str) -> Status:
    """Turn a wheel on a terminal while something is done that can't be counted."""
    return console.status(what, spinner="dots" if can_show(console, DOTS) else "line")


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print one line, as it is: names in it are no markup."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
