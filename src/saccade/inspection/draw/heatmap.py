"""Draws attention weights as a heat map, in the terminal or as a picture file."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.text import Text
from torch import Tensor

from saccade.inspection.draw.figure import RAMP, check_ending, make_colour_map, open_picture

__all__ = [
    "SHADES",
    "WIDEST_WORD",
    "Pen",
    "can_show",
    "check_ending",
    "in_terminal",
    "make_printable",
    "split_columns",
    "to_file",
]

SHADES = " ░▒▓█"
PLAIN_SHADES = " .:*#"  # where only ASCII can be shown
WIDEST_WORD = 12
NARROWEST_CELL = 3  # room for 100
LEAST_SAID = 0.05  # smaller weights are a colour without a number
MANY_KEYS, LONG_KEY = 16, 5  # beside each other their names would touch
LETTER, MOST_ROOM = 0.09, 40.0  # inches of a picture
LEFT_TO_RIGHT = "\N{LEFT-TO-RIGHT MARK}"
TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Ramp(NamedTuple):
    """Colours from no weight to full weight, and the colours of numbers on low and on high weights."""

    stops: Sequence[str]
    ink: str
    ink_on_high: str

    def style(self, share: float) -> str:
        below = min(len(self.stops) - 2, int(share * (len(self.stops) - 1)))
        part = share * (len(self.stops) - 1) - below
        ends = [[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in self.stops[below : below + 2]]
        mixed = ",".join(str(round(low + (high - low) * part)) for low, high in zip(*ends, strict=True))
        return f"{self.ink_on_high if share > 0.58 else self.ink} on rgb({mixed})"


DARK = Ramp(("#20262d", "#26435f", "#2f6da6", "#6fb1ea", "#d8ecff"), "#e6e8eb", "#0b0f14")
LIGHT = Ramp(RAMP, "#1d2126", "#ffffff")


class Pen(NamedTuple):
    """The characters and colours that a terminal can show: colours (or None), shades, and the sign of a cut word."""

    ramp: Ramp | None
    shades: str
    cut: str

    @classmethod
    def of(cls, console: Console) -> Pen:
        """Choose for a terminal; some tell their background in COLORFGBG, and most are dark."""
        ramp = LIGHT if os.environ.get("COLORFGBG", "").endswith((";7", ";15")) else DARK
        is_rich = can_show(console, SHADES + "…")
        has_colours = console.color_system in ("256", "truecolor")
        return cls(ramp if has_colours else None, *((SHADES, "…") if is_rich else (PLAIN_SHADES, "~")))

    def style(self, share: float) -> str:
        """Return the style of a cell for a share from 0 to 1."""
        return "not bold" if self.ramp is None else f"not bold {self.ramp.style(share)}"

    def cell(self, weight: float, share: float, width: int) -> str:
        """Format a weight as percent if there are colours, else as the shade of its share."""
        if self.ramp is None:
            return self.shades[round(share * (len(self.shades) - 1))] * width
        return (f"{100 * weight:.0f}" if weight >= LEAST_SAID else "").center(width)

    def fit(self, word: str, width: int) -> str:
        """Cut or pad a word to this width; a mark after a right-to-left word keeps the next word to its right."""
        short = word if cell_len(word) <= width else set_cell_size(word, width - 1) + self.cut
        turns = any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in short)
        return short + LEFT_TO_RIGHT * turns + " " * (width - cell_len(short))


def in_terminal(
    weights_TS: Tensor,
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    console: Console,
    most: float = 1.0,
    longest: int = WIDEST_WORD,
) -> RenderableType:
    """Draw a row for each query under a line of keys; columns that don't fit continue below.

    Cells are colours with percents if the terminal has colours, else shades; `most` is the weight of the last one.
    Queries longer than `longest` are cut, and so are those that leave the keys too little room.
    """
    queries, keys = ([make_printable(word, console.encoding) for word in side] for side in (queries, keys))
    free = console.width - sum(1 + min(WIDEST_WORD, max(NARROWEST_CELL, cell_len(word))) for word in keys)
    left = min(longest, max(console.width // 3, free - 1), max(map(cell_len, queries), default=0)) + 1
    widest = max(NARROWEST_CELL, min(WIDEST_WORD, console.width - left - 1))
    widths = [min(widest, max(NARROWEST_CELL, cell_len(word))) for word in keys]
    pen, lines = Pen.of(console), list[RenderableType]()
    for part in split_columns(widths, console.width - left):
        header = " ".join(pen.fit(word, width) for word, width in zip(keys[part], widths[part], strict=True))
        rows = zip(queries, weights_TS[:, part].tolist(), strict=True)
        lines += [Text("")] * bool(lines) + [Text(" " * left + header, style="bold", no_wrap=True)]
        lines += [_row(pen, pen.fit(word, left - 1), row, widths[part], most) for word, row in rows]
    return Group(*lines)


def _row(pen: Pen, word: str, weights: Sequence[float], widths: Sequence[int], most: float) -> Text:
    line = Text(word, style="bold", no_wrap=True)
    for weight, width in zip(weights, widths, strict=True):
        share = min(1.0, max(0.0, weight / most))
        line.append(" ").append(pen.cell(weight, share, width), pen.style(share))
    return line


def make_printable(word: str, encoding: str = "utf-8") -> str:
    """Make a word printable: blank control characters, drop marks of direction, replace what has no encoding."""
    seen = (" " if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") else letter for letter in word)
    return "".join(letter for letter in seen if letter not in TURNING).encode(encoding, "replace").decode(encoding)


def can_show(console: Console, text: str) -> bool:
    """Return True if a terminal can show all of these characters."""
    return make_printable(text, console.encoding) == text


def split_columns(widths: Sequence[int], room: int) -> Iterator[slice]:
    """Split columns into runs that fit the room, with a space between columns."""
    start, used = 0, 0
    for index, width in enumerate(widths):
        if index > start and used + width + 1 > room:
            yield slice(start, index)
            start, used = index, 0
        used += width + 1
    yield slice(start, len(widths))


def to_file(
    weights_TS: Tensor,
    path: Path | str,
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    label: str = "weight",
    most: float = 1.0,
) -> None:
    """Write a PNG, SVG or PDF, by the path's ending; `most` is the weight of the last colour."""
    longest_key, longest_query = (max(map(cell_len, side), default=0) for side in (keys, queries))
    is_narrow = len(keys) > MANY_KEYS or longest_key > LONG_KEY
    size = (
        1.6 + 0.42 * len(keys) + _room(longest_query),
        1.3 + 0.36 * len(queries) + is_narrow * _room(longest_key),
    )
    with open_picture(Path(path), size) as figure:
        axes = figure.add_subplot()
        image = axes.imshow(
            weights_TS.detach().float().cpu().numpy(), cmap=make_colour_map(), vmin=0, vmax=most, aspect="auto"
        )
        axes.set_xticks(range(len(keys)), keys, rotation=90 if is_narrow else 0)
        axes.set_yticks(range(len(queries)), queries)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.set_xticks([i - 0.5 for i in range(1, len(keys))], minor=True)
        axes.set_yticks([i - 0.5 for i in range(1, len(queries))], minor=True)
        axes.grid(which="minor", color="white", linewidth=0.8)
        axes.spines[:].set_visible(False)
        axes.tick_params(which="minor", length=0)
        figure.colorbar(image, ax=axes, label=label, fraction=0.04, pad=0.02, aspect=30).outline.set_visible(False)
        if title:
            axes.set_title(title)


def _room(letters: int) -> float:
    """Return the inches that a side's longest name takes beyond those that every picture has."""
    return min(MOST_ROOM, max(0.0, LETTER * letters - 0.6))
