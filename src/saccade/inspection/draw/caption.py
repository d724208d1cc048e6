"""Draws a caption word by word: the picture, then for each word its attention over it (Xu 2015, figure 3)."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.text import Text

from saccade.files import replace_file
from saccade.inspection.draw.heatmap import Pen, check_ending, make_printable
from saccade.inspection.pages.render import png_address, render

COLUMNS = 6
SIDE = 1.5  # of a panel, in inches
DARKEST = 0.12  # how much is still seen of what has no weight
VEIL = 0.2  # of white over the picture, so that looking at something dark is seen too


def to_file(
    path: Path, picture_CYX: NDArray[np.uint8] | None, words: Sequence[str], weight_TYX: NDArray[Any], title: str = ""
) -> None:
    """Write a PNG, SVG or PDF, by the path's ending."""
    check_ending(path)
    figure = _figure(picture_CYX, words, weight_TYX, title)
    with replace_file(path) as draft:
        figure.savefig(draft)


def render_article(
    picture_CYX: NDArray[np.uint8] | None, words: Sequence[str], weight_TYX: NDArray[Any], references: Sequence[str]
) -> Markup:
    """Render a part of a page: the caption, its references, and the attention of each word."""
    drawn = io.BytesIO()
    _figure(picture_CYX, words, weight_TYX, "").savefig(drawn, format="png")
    address = png_address(drawn.getvalue())
    return render("caption.html", text=" ".join(words), references=references, address=address)


def encode_picture(picture_CYX: NDArray[np.uint8]) -> str:
    """Encode the picture as a data: address, so that a page needs no second file."""
    from PIL import Image

    drawn = io.BytesIO()
    Image.fromarray(np.rint(255 * _convert_to_rgb(picture_CYX)).astype(np.uint8)).save(drawn, "png")
    return png_address(drawn.getvalue())


def in_terminal(words: Sequence[str], weight_TYX: NDArray[Any], console: Console) -> RenderableType:
    """Draw a shaded map of the weights for each word, side by side."""
    panels, shades = [], Pen.of(console).shades
    for word, weight_YX in zip(words, weight_TYX, strict=True):
        level_YX = np.rint(weight_YX / max(float(weight_YX.max()), 1e-9) * (len(shades) - 1)).astype(int)
        lines = ["".join(2 * shades[level] for level in row) for row in level_YX]
        panels.append(Text("\n".join([make_printable(word, console.encoding), *lines]), no_wrap=True))
    return Columns(panels, padding=(1, 2))


def overlay(
    picture_CYX: NDArray[np.uint8] | None, weight_YX: NDArray[Any], most: float | None = None
) -> NDArray[np.float64]:
    """Darken the picture where weights are low and return [Y, X, 3]; without a picture, draw the weights as light.

    A cell with the weight `most` is not darkened: by default the greatest.
    """
    light_YX = DARKEST + (1 - DARKEST) * weight_YX / max(float(weight_YX.max()) if most is None else most, 1e-9)
    if picture_CYX is None:
        return np.repeat(light_YX[..., None], 3, 2)
    picture_YXC = _convert_to_rgb(picture_CYX)
    rows, columns = (
        np.minimum(np.arange(size) * cells // size, cells - 1)
        for size, cells in zip(picture_YXC.shape[:2], weight_YX.shape, strict=True)
    )
    return ((1 - VEIL) * picture_YXC + VEIL) * light_YX[np.ix_(rows, columns)][..., None]


def _convert_to_rgb(picture_CYX: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Convert a picture, grey or coloured, to [Y, X, 3] from 0 to 1."""
    return np.broadcast_to(picture_CYX, (3, *picture_CYX.shape[1:])).transpose(1, 2, 0) / 255


def _figure(picture_CYX: NDArray[np.uint8] | None, words: Sequence[str], weight_TYX: NDArray[Any], title: str) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels: list[tuple[str, NDArray[np.float64]]] = []
    if picture_CYX is not None:
        panels.append(("", _convert_to_rgb(picture_CYX)))
    panels += [(word, overlay(picture_CYX, weight)) for word, weight in zip(words, weight_TYX, strict=True)]
    columns = max(1, min(COLUMNS, len(panels)))  # nothing may be said of nothing
    rows = max(1, math.ceil(len(panels) / columns))
    figure = Figure(figsize=(SIDE * columns, (SIDE + 0.25) * rows + 0.3 * bool(title)), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    for number, (word, shown) in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, number)
        axes.imshow(np.clip(shown, 0, 1), interpolation="nearest")
        axes.set_title(word, fontsize=11, parse_math=False)
        axes.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=10, parse_math=False)
    return figure
