"""Draws all layers and heads of an attention in one picture: a grid of small heat maps with one scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.inspection.draw.figure import make_colour_map, open_picture

INK, QUIET, MARK = "#1d2126", "#5c6570", "#d9480f"
MOST_NAMED = 24  # words on a side, beyond which their names would touch
LETTER = 0.085  # inches of room for a word


def to_file(
    weight_LHTS: Tensor,
    path: Path,
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    marked: tuple[int, int] | None = None,
) -> None:
    """Write a PNG, SVG or PDF with a row for each layer and a column for each head; a `marked` head is framed."""
    num_layers, num_heads, height, width = weight_LHTS.shape
    across, down = (min(2.6, max(1.1, LETTER * size * 1.6)) for size in (width, height))
    with open_picture(path, (2.0 + across * num_heads, 1.7 + down * num_layers)) as figure:
        panels = figure.subplots(num_layers, num_heads, squeeze=False, sharex=True, sharey=True)
        for layer, head in ((layer, head) for layer in range(num_layers) for head in range(num_heads)):
            axes, weight_TS = panels[layer, head], weight_LHTS[layer, head].detach().float().cpu().numpy()
            image = axes.imshow(
                weight_TS, cmap=make_colour_map(), vmin=0, vmax=1, aspect="auto", interpolation="nearest"
            )
            _frame(axes, (layer, head) == marked)
            if not layer:
                axes.set_title(f"head {head}", fontsize=9, color=QUIET)
            if not head:
                axes.set_ylabel(f"layer {layer}", fontsize=9, color=QUIET)
        _name(panels, queries, keys)
        bar = figure.colorbar(image, ax=panels, label="weight", ticks=[0, 0.5, 1], fraction=0.02, pad=0.01, aspect=40)
        bar.outline.set_visible(False)
        figure.suptitle(title, fontsize=11, color=INK)


def _frame(axes: Any, is_marked: bool) -> None:
    for spine in axes.spines.values():
        spine.set_color(MARK if is_marked else "#d5d9de")
        spine.set_linewidth(2 if is_marked else 0.6)


def _name(panels: Any, queries: Sequence[str], keys: Sequence[str]) -> None:
    """Write words at the left of the first column and under the last row, if there is room."""
    panels[0, 0].set_xticks(range(len(keys)) if len(keys) <= MOST_NAMED else [])
    panels[0, 0].set_yticks(range(len(queries)) if len(queries) <= MOST_NAMED else [])
    for axes in panels.flat:
        axes.tick_params(length=0, labelsize=6, labelcolor=INK, pad=2)
    for axes in panels[-1]:
        if len(keys) <= MOST_NAMED:
            axes.set_xticklabels(keys, rotation=90)
    for axes in panels[:, 0]:
        if len(queries) <= MOST_NAMED:
            axes.set_yticklabels(queries)
