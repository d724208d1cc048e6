"""Draws the caption of a clip word by word: its frames side by side, and when and where each word looked."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray
from rich.console import Console, RenderableType

from saccade.files import replace_file
from saccade.inspection.draw import heatmap
from saccade.inspection.draw.caption import overlay
from saccade.inspection.draw.figure import make_colour_map
from saccade.inspection.draw.heatmap import check_ending
from saccade.inspection.pages.render import png_address, render

ACROSS = 8  # frames beside each other where they are laid out as one picture
SIDE = 0.62  # of a frame, in inches
LEFT = 1.1  # room for words, in inches
BAR = 0.16  # the height of the bar of weights below the frames, as a share of theirs
TRUE = "#d9480f"
Span = tuple[int, int, int]  # a word, and its first and last frame, all from 0 on


def lay_out(part_NFYX: NDArray[Any]) -> NDArray[Any]:
    """Lay frames, or their weights, side by side: [N, rows * Y, ACROSS * X]. What is left of the last row is 0."""
    count, num_frames, height, width = part_NFYX.shape
    across = min(ACROSS, num_frames)
    rows = math.ceil(num_frames / across)
    full = np.zeros((count, rows * across, height, width), part_NFYX.dtype)
    full[:, :num_frames] = part_NFYX
    return full.reshape(count, rows, across, height, width).swapaxes(2, 3).reshape(count, rows * height, across * width)


def to_file(
    path: Path,
    frame_FCYX: NDArray[np.uint8] | None,
    words: Sequence[str],
    weight_TFYX: NDArray[Any],
    title: str = "",
    spans: Sequence[Span] = (),
) -> None:
    """Write a PNG, SVG or PDF, by the path's ending."""
    check_ending(path)
    figure = _figure(frame_FCYX, words, weight_TFYX, title, spans)
    with replace_file(path) as draft:
        figure.savefig(draft)


def render_article(
    frame_FCYX: NDArray[np.uint8] | None,
    words: Sequence[str],
    weight_TFYX: NDArray[Any],
    references: Sequence[str],
    spans: Sequence[Span] = (),
) -> Markup:
    """Render a part of a page: the caption, its references, and the attention of each word."""
    drawn = io.BytesIO()
    _figure(frame_FCYX, words, weight_TFYX, "", spans).savefig(drawn, format="png")
    address = png_address(drawn.getvalue())
    return render("caption.html", text=" ".join(words), references=references, address=address)


def in_terminal(words: Sequence[str], weight_TFYX: NDArray[Any], console: Console) -> RenderableType:
    """Draw when each word looked: a row for each word, a column for each frame."""
    weight_TF = torch.from_numpy(weight_TFYX.sum((2, 3)))
    frames = [str(number) for number in range(1, weight_TF.shape[1] + 1)]
    return heatmap.in_terminal(weight_TF, queries=words, keys=frames, console=console)


def _figure(
    frame_FCYX: NDArray[np.uint8] | None,
    words: Sequence[str],
    weight_TFYX: NDArray[Any],
    title: str,
    spans: Sequence[Span],
) -> Any:
    """Draw a row for the clip and for each word; below its frames the weight of each, and in orange its true span."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    num_frames, height, width = weight_TFYX.shape[1:]
    when = {word: (first, last) for word, first, last in spans}
    rows = len(words) + (frame_FCYX is not None)
    size = LEFT + SIDE * num_frames, (SIDE * height / width * (1 + 2 * BAR)) * max(1, rows) + 0.3 + 0.3 * bool(title)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(max(1, rows), 1, squeeze=False)[:, 0]
    for axes in panels:
        axes.set(xlim=(0, num_frames), ylim=(-1.5 * BAR, 1), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for axes in panels[:1]:
        axes.set_xticks(np.arange(num_frames) + 0.5, range(1, num_frames + 1), fontsize=8)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
    if frame_FCYX is not None:
        _show(panels[0], [overlay(frame_CYX, np.ones((1, 1))) for frame_CYX in frame_FCYX])
    for number, (axes, word) in enumerate(zip(panels[rows - len(words) : rows], words, strict=True)):
        _show_word(axes, word, frame_FCYX, weight_TFYX[number])
        if number in when:
            first, last = when[number]
            axes.plot([first, last + 1], [-1.25 * BAR] * 2, color=TRUE, linewidth=2.5, solid_capstyle="butt")
    if title:
        figure.suptitle(title, fontsize=10, parse_math=False)
    return figure


def _show_word(axes: Any, word: str, frame_FCYX: NDArray[np.uint8] | None, weight_FYX: NDArray[Any]) -> None:
    """Darken each frame where the word didn't look, and draw the weights of the frames below."""
    most = max(float(weight_FYX.max()), 1e-9)
    pictures = [None] * len(weight_FYX) if frame_FCYX is None else frame_FCYX
    _show(axes, [overlay(one, weight_YX, most) for one, weight_YX in zip(pictures, weight_FYX, strict=True)])
    share_1F = weight_FYX.sum((1, 2))[None]
    extent = 0, len(weight_FYX), -BAR, 0
    axes.imshow(share_1F, extent=extent, cmap=make_colour_map(), vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_ylabel(word, rotation=0, ha="right", va="center", fontsize=11, parse_math=False)


def _show(axes: Any, frames: Sequence[NDArray[np.float64]]) -> None:
    for number, frame_YXC in enumerate(frames):
        shown = np.clip(frame_YXC, 0, 1)
        axes.imshow(shown, extent=(number + 0.02, number + 0.98, 0, 1), aspect="auto", interpolation="nearest")
    axes.set(xlim=(0, len(frames)), ylim=(-1.5 * BAR, 1))
