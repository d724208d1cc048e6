"""Draws curves of several seeds: a panel for each quantity, the mean of the seeds as a line, their range as a band."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saccade.inspection.draw.figure import open_picture

COLOURS = ("#1762a8", "#d9480f", "#2b8a3e", "#7b3294", "#b08900", "#5c6570", "#0b7285", "#c2255c")
WIDE, HIGH = 4.4, 3.5  # of a panel, in inches
DASHES = ((), (5, 1.5), (1.5, 1.5), (6, 1.5, 1.5, 1.5))  # so that curves that lie on each other are both seen
MOST_ACROSS = 3
NARROWEST_TITLE = 0.085  # inches of a letter
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Points = Sequence[tuple[float, float]]


class Axes(NamedTuple):
    """The axes of a panel: its title, the names of the axes, and which are logarithmic."""

    title: str
    across: str
    up: str
    log_across: bool = False
    log_up: bool = False


class BandCurve(NamedTuple):
    """A curve over several seeds: x, and the mean, the lowest and the highest y."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]

    @classmethod
    def of(cls, seeds: Sequence[Points]) -> BandCurve:
        """Join the curves of all seeds at the places that all of them have."""
        values = [dict(points) for points in seeds]
        x = [place for place, _ in seeds[0] if all(place in value for value in values)]
        y = [[value[place] for value in values] for place in x]
        return cls(x, [statistics.mean(one) for one in y], [min(one) for one in y], [max(one) for one in y])


def to_file(path: Path, panels: Sequence[tuple[Axes, Mapping[str, BandCurve]]], *, title: str = "") -> None:
    """Write a PNG, SVG or PDF, by the path's ending."""
    across = len(panels) if len(panels) <= MOST_ACROSS else 2
    rows = -(-len(panels) // across)
    lines = textwrap.wrap(title, int(WIDE * across / NARROWEST_TITLE))
    with open_picture(path, (WIDE * across, HIGH * rows + 0.25 * len(lines))) as figure:
        places = list(figure.subplots(rows, across, squeeze=False).flat)
        for axes, (names, bands) in zip(places, panels, strict=False):
            _draw(axes, names, bands)
        for axes in places[len(panels) :]:
            axes.set_axis_off()
        figure.suptitle("\n".join(lines), fontsize=11)


def _draw(axes: Any, names: Axes, bands: Mapping[str, BandCurve]) -> None:
    for number, (name, band) in enumerate(bands.items()):
        colour = COLOURS[number % len(COLOURS)]
        marker = "o" if len(band.x) <= 12 else ""
        dashes = DASHES[number % len(DASHES)] or (None, None)
        look: Any = {"color": colour, "linewidth": 1.6, "marker": marker, "markersize": 3.5, "dashes": dashes}
        axes.plot(band.x, band.mean, label=name, **look)
        axes.fill_between(band.x, band.low, band.high, color=colour, alpha=0.18, linewidth=0)
    if names.log_across:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({x for band in bands.values() for x in band.x}))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.minorticks_off()
    if names.log_up:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda y, _: "10" + f"{math.log10(y):.0f}".translate(SUPERSCRIPT))
    axes.set_title(names.title, fontsize=10, loc="left")
    axes.set_xlabel(names.across, fontsize=9)
    axes.set_ylabel(names.up, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(color="#e3e6ea", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
