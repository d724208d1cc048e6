"""Draws a path of glimpses in the terminal: the picture, two pixels a character, with the numbered path on it."""

from __future__ import annotations

import functools
import itertools
import string
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.text import Text
from torch.nn import functional as F

from saccade.inspection.draw.heatmap import Pen, can_show, make_printable
from saccade.inspection.draw.path import Scanpath, colour

WIDEST, TALLEST = 64, 40  # characters and lines
BLOCK, DOT = "▀", "•"
PLAIN_BLOCK, PLAIN_DOT = " ", "+"  # where only ASCII can be shown
SIGNS = string.digits[1:] + string.ascii_letters  # a glimpse has one character
Place = tuple[int, int]  # row and column


class Canvas(NamedTuple):
    """A picture scaled to the terminal, [Y, X, 3] from 0 to 255; a line of characters shows two rows."""

    pixel_YXC: NDArray[np.uint8]
    pen: Pen
    is_ascii: bool

    @classmethod
    def of(cls, image_CYX: NDArray[np.uint8], console: Console) -> Canvas:
        """Scale a picture to the terminal: shrink it by means, or enlarge it by a whole number."""
        rows, columns = image_CYX.shape[-2:]
        scale = min(min(WIDEST, console.width) / columns, 2 * TALLEST / rows)
        scale = scale if scale < 1 else int(scale)
        width, height = max(1, round(columns * scale)), 2 * max(1, round(rows * scale / 2))
        small_CYX = F.adaptive_avg_pool2d(torch.tensor(image_CYX).float(), (height, width)).round().byte().numpy()
        pixel_YXC = np.broadcast_to(small_CYX, (3, height, width)).transpose(1, 2, 0)
        return cls(pixel_YXC, Pen.of(console), not can_show(console, BLOCK + DOT))

    def lines(self, way: dict[Place, int], marks: dict[Place, int], total: int) -> list[Text]:
        """Draw the lines of characters: pixels, the path in the colours of its steps, and the marks on top."""
        painted_YXC = self.pixel_YXC.copy()
        for place, step in way.items():
            painted_YXC[place] = _rgb(step, total)
        lines = [Text(no_wrap=True) for _ in range(len(painted_YXC) // 2)]
        for row, column in np.ndindex(len(lines), painted_YXC.shape[1]):
            if (row, column) in marks:
                mark = marks[row, column]
                lines[row].append(_sign(mark), self.mark_style(mark, total))
            elif self.pen.ramp is not None:
                lines[row].append(*self._block(painted_YXC[2 * row : 2 * row + 2, column]))
            else:
                is_way = (2 * row, column) in way or (2 * row + 1, column) in way
                lines[row].append(self._dot() if is_way else self._shade(row, column))
        return lines

    def mark_style(self, step: int, total: int) -> str:
        """Return the style of a number: on the colour of its step, or bold if there are no colours."""
        return "bold" if self.pen.ramp is None else f"bold black on {_style(_rgb(step, total))}"

    def _block(self, pixel_2C: NDArray[np.uint8]) -> tuple[str, str]:
        if self.is_ascii:
            return PLAIN_BLOCK, f"on {_style(pixel_2C.mean(0))}"
        return BLOCK, f"{_style(pixel_2C[0])} on {_style(pixel_2C[1])}"

    def _dot(self) -> str:
        return PLAIN_DOT if self.is_ascii else DOT

    def _shade(self, row: int, column: int) -> str:
        share = float(self.pixel_YXC[2 * row : 2 * row + 2, column].mean()) / 255
        return self.pen.cell(share, share, 1)


def in_terminal(scanpath: Scanpath, console: Console) -> RenderableType:
    """Draw the picture with the numbered path of glimpses, and below it the belief after each glimpse.

    It is drawn in half blocks if the terminal has colours, else in shades.
    """
    canvas = Canvas.of(scanpath.image_CYX, console)
    (height, width), (rows, columns) = canvas.pixel_YXC.shape[:2], scanpath.image_CYX.shape[-2:]
    places = [
        (min(height - 1, int(y * height / rows)), min(width - 1, int(x * width / columns)))
        for x, y in scanpath.pixels()
    ]
    way = {at: step for step, ends in enumerate(itertools.pairwise(places), 1) for at in _trace_line(*ends)}
    lines = canvas.lines(
        way, _place_marks([(row // 2, column) for row, column in places], height // 2, width), len(places)
    )
    return Group(*lines, Columns(_beliefs(scanpath, canvas, console), padding=(0, 2)))


def _beliefs(scanpath: Scanpath, canvas: Canvas, console: Console) -> Iterator[Text]:
    total = len(scanpath.location_T2)
    for step in range(total):
        name, share = scanpath.belief(step)
        number = (_sign(step), canvas.mark_style(step, total))
        yield Text.assemble(number, f": {make_printable(name, console.encoding)} {share:.0%}", no_wrap=True)


def _trace_line(start: Place, end: Place) -> Iterator[Place]:
    """Yield the pixels of a straight line."""
    steps = max(1, *(abs(to - at) for at, to in zip(start, end, strict=True)))
    for step in range(steps + 1):
        row, column = (round(at + (to - at) * step / steps) for at, to in zip(start, end, strict=True))
        yield row, column


def _place_marks(places: Sequence[Place], height: int, width: int) -> dict[Place, int]:
    """Put each number in its place, or on the nearest free character, as glimpses often look twice at a thing."""
    taken: dict[Place, int] = {}
    for step, place in enumerate(places):
        free = [(row, column) for row, column in np.ndindex(height, width) if (row, column) not in taken]
        taken[min(free, key=functools.partial(_distance, place), default=place)] = step
    return taken


def _distance(one: Place, other: Place) -> int:
    """Return the squared distance; a character is twice as high as it is wide."""
    return 4 * (one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2


def _sign(step: int) -> str:
    return SIGNS[step % len(SIGNS)]


def _style(colour_C: NDArray[Any]) -> str:
    red, green, blue = (round(float(value)) for value in colour_C)
    return f"rgb({red},{green},{blue})"


def _rgb(step: int, total: int) -> NDArray[np.uint8]:
    return np.rint(255 * np.array(colour(step, total))).astype(np.uint8)
