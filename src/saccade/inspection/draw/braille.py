"""Draws curves in the terminal with braille dots, for example those of a run's log."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from saccade.inspection.draw.heatmap import can_show

WIDTH, HEIGHT = 28, 7  # characters; each is two dots wide and four high
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character, from its top
BLANK, TOP_HALF = 0x2800, 0x01 | 0x08 | 0x02 | 0x10
PLAIN: dict[int, str] = {  # where only ASCII can be shown: a dot above, below, or both
    **{BLANK + cell: " '.:"[bool(cell & TOP_HALF) + 2 * bool(cell & ~TOP_HALF)] for cell in range(256)},
    **{ord(line): plain for line, plain in zip("│└─", "|+-", strict=True)},
}
Curve = tuple[list[float], list[float]]


def read_curve(path: Path, name: str) -> Curve:
    """Read the steps at which a log has this value, and the values."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    found = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    return [step for step, _ in found], [value for _, value in found]


def in_terminal(
    curves: dict[str, Curve],
    *,
    console: Console,
    between: tuple[float, float] | None = None,
    end: str | None = None,
) -> RenderableType:
    """Draw curves side by side, each under its name, with its highest and lowest value beside it.

    The curves share the scale `between` if it is given; `end` replaces the label of the last step.
    """
    spelling = {} if can_show(console, "".join(map(chr, PLAIN))) else PLAIN
    table = Table(box=None, show_header=True, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in curves:
        table.add_column(name, no_wrap=True)
    table.add_row(*(Text(_panel(curve, between, end).translate(spelling)) for curve in curves.values()))
    return table


def _panel(curve: Curve, between: tuple[float, float] | None, end: str | None) -> str:
    steps, values = curve
    lowest, highest = between or (min(values), max(values))
    top, bottom = (f"{round(value, 2) + 0.0:8.2f} " for value in (highest, lowest))  # no -0.00
    labels = [top, *[" " * 9] * (HEIGHT - 2), bottom]
    lines = [label + "│" + line for label, line in zip(labels, draw_dots(steps, values, between), strict=True)]
    last = f"step {steps[-1]:,.0f}" if end is None else end
    return "\n".join([*lines, " " * 9 + "└" + "─" * WIDTH, f"{last:>{WIDTH + 10}}"])


def draw_dots(steps: Sequence[float], values: Sequence[float], between: tuple[float, float] | None = None) -> list[str]:
    """Draw a line through the points in braille dots; the highest value (or that of `between`) is at the top."""
    lowest, highest = between or (min(values), max(values))
    columns, rows = 2 * WIDTH, 4 * HEIGHT
    at = [steps[0] + (steps[-1] - steps[0]) * column / (columns - 1) for column in range(columns)]
    height = [(_interpolate(steps, values, step) - lowest) / ((highest - lowest) or 1) for step in at]
    row = [round((rows - 1) * (1 - share)) for share in height]
    cells = [[0] * WIDTH for _ in range(HEIGHT)]
    for column, (before, here) in enumerate(itertools.pairwise([row[0], *row])):
        for dot in range(min(before, here), max(before, here) + 1):
            cells[dot // 4][column // 2] |= DOTS[dot % 4][column % 2]
    return ["".join(chr(BLANK + cell) for cell in line) for line in cells]


def _interpolate(steps: Sequence[float], values: Sequence[float], step: float) -> float:
    """Interpolate the value at a step between its two neighbours."""
    for (left, low), (right, high) in itertools.pairwise(zip(steps, values, strict=True)):
        if left <= step <= right:
            return low + (high - low) * (step - left) / (right - left)
    return values[-1]
