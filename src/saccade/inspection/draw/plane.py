"""Draws points of a plane, and the way along which a model pointed at some of them."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.inspection.draw.figure import RAMP, open_picture

WIDTH = 2  # numbers of a point
SIDE = 5.0  # inches


class PointingPath(NamedTuple):
    """Points [S, 2], the places that were chosen in order, log p of each choice, and the places that are right."""

    point_SC: NDArray[np.float64]
    places: Sequence[int]
    log_p: Sequence[float]
    right: Sequence[int]


def to_file(way: PointingPath, path: Path, *, title: str = "") -> None:
    """Write a PNG, SVG or PDF: the chosen points are numbered, with the chance of each; dashed is what is right."""
    with open_picture(path, (SIDE, SIDE)) as figure:
        _draw(figure, way, title)


def to_png(way: PointingPath, *, title: str = "") -> bytes:
    """Draw the points and the way through them as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, written = Figure(figsize=(SIDE, SIDE), layout="constrained", dpi=110), io.BytesIO()
    FigureCanvasAgg(figure)
    _draw(figure, way, title)
    figure.savefig(written, format="png")
    return written.getvalue()


def _draw(figure: Any, way: PointingPath, title: str) -> None:
    point_SC, places, log_p, right = way
    axes = figure.subplots()
    axes.scatter(point_SC[:, 0], point_SC[:, 1], s=18, color=RAMP[2], zorder=2)
    for line, style in [(places, "-"), *([] if list(places) == list(right) else [(right, "--")])]:
        way_TC = point_SC[[*line, *line[:1]]]
        axes.plot(way_TC[:, 0], way_TC[:, 1], style, color=RAMP[3 if style == "-" else 2], linewidth=1.2, zorder=1)
    centre_C = point_SC.mean(0)
    for number, (place, one) in enumerate(zip(places, log_p, strict=False), 1):
        away_C = point_SC[place] - centre_C
        length = float(np.hypot(*away_C)) or 1.0
        axes.annotate(
            f"{number}  {math.exp(one):.0%}",
            point_SC[place],
            xytext=tuple(14 * away_C / length),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
        )
    axes.scatter(point_SC[list(places), 0], point_SC[list(places), 1], s=36, color=RAMP[3], zorder=3)
    axes.set_xlim(-0.08, 1.08)
    axes.set_ylim(-0.08, 1.08)
    axes.set_aspect("equal")
    axes.set_title(title, fontsize=10)
