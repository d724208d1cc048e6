"""Draws pictures of the same steps below each other: what was given and written, and where heads were."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console, Group, RenderableType
from rich.text import Text
from torch.nn import functional as F

from saccade.inspection.draw.figure import make_colour_map, open_picture
from saccade.inspection.draw.half_blocks import BLOCK, TALLEST, Canvas
from saccade.inspection.draw.heatmap import Pen, can_show

ROW = 0.055  # inches of a row of a tall panel
TALLEST_ROW = 0.11
STEP, NARROWEST, WIDEST = 0.09, 5.0, 14.0  # inches


class TrackPanel(NamedTuple):
    """A named picture of rows over steps [Y, T] from 0 to 1, NaN where there is nothing; `first` numbers its rows."""

    name: str
    share_YT: NDArray[np.float64]
    first: int = 0


def in_terminal(panels: Sequence[TrackPanel], console: Console) -> RenderableType:
    """Draw panels below each other, in half blocks or shades. Large ones are shrunk."""
    lines: list[RenderableType] = []
    for panel in panels:
        rows, steps = panel.share_YT.shape
        lines.append(Text(f"{panel.name} ({panel.first} to {panel.first + rows - 1})", style="bold"))
        size = min(TALLEST, rows + rows % 2), min(console.width, steps)
        share_1YT = torch.from_numpy(np.nan_to_num(panel.share_YT))[None].float()
        small_YT = F.adaptive_max_pool2d(F.pad(share_1YT, (0, 0, 0, max(0, size[0] - rows))), size)[0].numpy()
        pixel_YTC = np.rint(255 * small_YT).astype(np.uint8)[..., None].repeat(3, -1)
        lines += Canvas(pixel_YTC, Pen.of(console), not can_show(console, BLOCK)).lines({}, {}, 1)
    return Group(*lines)


def to_file(panels: Sequence[TrackPanel], path: Path, *, title: str = "", mark: float | None = None) -> None:
    """Write a PNG, SVG or PDF; `mark` draws a line before this step."""
    with open_picture(path, _size(panels)) as figure:
        _draw(figure, panels, title, mark)


def to_png(panels: Sequence[TrackPanel], *, title: str = "", mark: float | None = None) -> bytes:
    """Draw the panels below each other as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, written = Figure(figsize=_size(panels), layout="constrained", dpi=110), io.BytesIO()
    FigureCanvasAgg(figure)
    _draw(figure, panels, title, mark)
    figure.savefig(written, format="png")
    return written.getvalue()


def _heights(panels: Sequence[TrackPanel]) -> list[float]:
    return [max(0.5, len(panel.share_YT) * (TALLEST_ROW if len(panel.share_YT) <= 16 else ROW)) for panel in panels]


def _size(panels: Sequence[TrackPanel]) -> tuple[float, float]:
    steps = panels[0].share_YT.shape[1]
    return 1.0 + min(WIDEST, max(NARROWEST, STEP * steps)), 0.9 + sum(_heights(panels)) + 0.12 * len(panels)


def _draw(figure: Any, panels: Sequence[TrackPanel], title: str, mark: float | None) -> None:
    all_axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=_heights(panels))[:, 0]
    for axes, panel in zip(all_axes, panels, strict=True):
        rows, steps = panel.share_YT.shape
        extent = (0.5, steps + 0.5, panel.first + rows - 0.5, panel.first - 0.5)
        axes.imshow(
            panel.share_YT,
            cmap=make_colour_map(),
            vmin=0,
            vmax=1,
            aspect="auto",
            interpolation="nearest",
            extent=extent,
        )
        axes.set_ylabel(panel.name)
        axes.tick_params(length=0, labelsize=7)
        axes.spines[:].set_color("#d5d9de")
        if mark is not None:
            axes.axvline(mark, color="#d9480f", linewidth=0.8)
    all_axes[-1].set_xlabel("step")
    if title:
        figure.suptitle(title, fontsize=10)
