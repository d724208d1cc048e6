"""What is said and shown while data are made ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.status import Status

from saccade.inspection.draw.heatmap import can_show

DOTS = "⠋"  # of the wheel that rich turns where there are more letters than ASCII's
T = TypeVar("T")


def show_progress(console: Console, rows: Iterable[T], what: str) -> Iterator[T]:
    """The same rows, counted on a terminal while they go by."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield from bar.track(rows, description=what)


def busy(console: Console, what: str) -> Status:
    """A wheel that turns on a terminal while something is done that can't be counted."""
    return console.status(what, spinner="dots" if can_show(console, DOTS) else "line")


def say(console: Console, text: str, style: str | None = None) -> None:
    """One line, as it is: names in it are no markup."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
