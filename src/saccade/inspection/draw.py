"""Attention weights as a picture: in the terminal, or as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.text import Text
from torch import Tensor

from saccade.data.files import replacing
from saccade.data.mistakes import Mistake

SHADES = " ░▒▓█"
WIDEST_WORD = 12
MANY_KEYS = 16  # beside each other their names would touch
PICTURES = (".png", ".svg", ".pdf")


def in_terminal(weights_TS: Tensor, *, queries: Sequence[str], keys: Sequence[str], console: Console) -> RenderableType:
    """A table of shaded cells, one row per query word; what is too wide for the window goes on below."""
    left = min(WIDEST_WORD, max(cell_len(word) for word in queries)) + 1
    width = min(WIDEST_WORD, max(2, *(cell_len(word) for word in keys))) + 1
    per_panel = max(1, (console.width - left) // width)
    panels: list[RenderableType] = []
    for start in range(0, len(keys), per_panel):
        stop = start + per_panel
        header = Text(" " * left + "".join(_fit(word, width) for word in keys[start:stop]), style="bold")
        rows = zip(queries, weights_TS[:, start:stop].tolist(), strict=True)
        panels += [header, *(_row(word, row, left, width) for word, row in rows)]
    return Group(*panels)


def _row(word: str, weights: Sequence[float], left: int, width: int) -> Text:
    line = Text(_fit(word, left), style="bold")
    for weight in weights:
        share = min(1.0, max(0.0, weight))
        shade = SHADES[round(share * (len(SHADES) - 1))]
        level = round(60 + 195 * share)
        line.append(shade * (width - 1), style=f"rgb({level // 3},{level},{level // 2})")
        line.append(" ")
    return line


def _fit(word: str, width: int) -> str:
    short = word if cell_len(word) < width else set_cell_size(word, width - 2) + "…"
    return set_cell_size(short, width)


def check_ending(path: Path) -> None:
    """A mistake where no picture can be written."""
    if path.suffix not in PICTURES:
        raise Mistake(f"{path}: a picture ends in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")


def to_file(
    weights_TS: Tensor,
    path: Path | str,
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    label: str = "weight",
) -> None:
    """PNG, SVG or PDF, by the path's ending."""
    check_ending(path := Path(path))
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 + 0.42 * len(keys), 1.3 + 0.36 * len(queries)), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(weights_TS.detach().float().cpu().numpy(), cmap="viridis", vmin=0, vmax=1, aspect="auto")
    is_narrow = len(keys) > MANY_KEYS or max(map(len, keys), default=0) > WIDEST_WORD
    axes.set_xticks(range(len(keys)), keys, rotation=90 if is_narrow else 0)
    axes.set_yticks(range(len(queries)), queries)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_xticks([i - 0.5 for i in range(1, len(keys))], minor=True)
    axes.set_yticks([i - 0.5 for i in range(1, len(queries))], minor=True)
    axes.grid(which="minor", color="white", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    figure.colorbar(image, ax=axes, label=label)
    if title:
        axes.set_title(title)
    with replacing(path) as draft:
        figure.savefig(draft)
