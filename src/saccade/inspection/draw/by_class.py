"""Draws a figure for each class of examples, such as BLEU by source length, for one model or for several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from saccade.files import replace_file


def to_file(
    figures: Mapping[str, Sequence[float]], path: Path, *, classes: Sequence[str], across: str, up: str
) -> None:
    """Write a PNG, SVG or PDF, by the path's ending, with a line for each name and a point for each class."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(5.0, 1.0 + 0.8 * len(classes)), 3.6), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, values in figures.items():
        axes.plot(range(len(classes)), values, marker="o", label=name)
    axes.set_xticks(range(len(classes)), classes)
    axes.set_ylim(0, 1.1 * max((max(values) for values in figures.values() if values), default=0.0) or 1.0)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="lower left")  # figures fall with length: there is room
    with replace_file(path) as draft:
        figure.savefig(draft)
