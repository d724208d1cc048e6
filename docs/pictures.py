"""Draws docs/scores/<name>.png for every entry of `saccade.SCORES`: what the score sees, and the weights it gives."""

from __future__ import annotations

import inspect
import io
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import numpy as np
import torch
from matplotlib import patheffects
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from PIL import Image
from torch import Tensor

import saccade
from saccade.attention import Score

FOLDER = Path(__file__).parent / "scores"
WIDTH, HEIGHT = 1100, 420  # pixels
SEED = 1620  # of the parameters of learned scores, as they are before training: a draw that shows each one's shape
REACH, GRID = 2.6, 161  # the key plane is [-REACH, REACH]², sampled GRID times a side

# A and B point the same way and differ in length; so do q1 and q5.
KEYS = {"A": (2.1, 0.6), "B": (0.91, 0.26), "C": (0.2, 1.9), "D": (-1.7, 1.2), "E": (-1.1, -1.7), "F": (1.2, -1.6)}
QUERIES = {"q1": (1.5, 0.9), "q2": (-0.8, 1.5), "q3": (-1.6, -0.7), "q4": (0.6, -1.6), "q5": (0.5, 0.3)}
DRAWN = ("q1", "q2")  # the queries of the two panels on the left
INK = {"q1": "#1b7837", "q2": "#7b3294"}
GREY = "#555555"

SCORE_COLORS = mpl.colormaps["RdBu_r"]
WEIGHT_COLORS = LinearSegmentedColormap.from_list("weight", SCORE_COLORS(np.linspace(0.5, 0.95, 64)))
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.edgecolor": "#999999",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.labelcolor": GREY,
}


def main() -> None:
    torch.set_grad_enabled(False)
    for name in saccade.SCORES:
        path = FOLDER / f"{name}.png"
        path.write_bytes(png(draw(name)))
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def draw(name: str) -> Figure:
    score = _build(name)
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100)
        figure.text(36 / WIDTH, 382 / HEIGHT, _equation(score), fontsize=13.5, color="#222222")
        draw_scores = _draw_positions if score.reads_position else _draw_surfaces
        draw_scores(score, _panel(figure, 36), _panel(figure, 352))
        _draw_weights(score, _panel(figure, 776))
    return figure


def _panel(figure: Figure | SubFigure, left: int, width: int = 300) -> Axes:
    return figure.add_axes((left / WIDTH, 44 / HEIGHT, width / WIDTH, 300 / HEIGHT))


def _build(name: str) -> Score:
    torch.manual_seed(SEED)
    return saccade.SCORES[name](2, 2)


def _equation(score: Score) -> str:
    sentence = (inspect.getdoc(type(score)) or "").partition("\n")[0]
    return sentence.partition(". ")[0].rstrip(".")


def _draw_surfaces(score: Score, *axes: Axes) -> None:
    """e(q, k) for every key k of the plane, one panel a query."""
    side = torch.linspace(-REACH, REACH, GRID)
    plane_SD = torch.cartesian_prod(side, side)
    surfaces = _scores(score, plane_SD, DRAWN).view(-1, GRID, GRID).mT.numpy()
    levels = _levels(float(np.abs(surfaces).max()))
    for name, axis, surface in zip(DRAWN, axes, surfaces, strict=True):
        filled = _draw_surface(axis, side.numpy(), surface, levels)
        _draw_keys(axis)
        _draw_query(axis, name)
        axis.set_title(f"score of every key for {name}")
    axes[1].set_yticklabels([])
    bar = axes[0].figure.colorbar(filled, cax=_panel(axes[0].figure, 664, 12), ticks=MaxNLocator(6, prune="both"))
    bar.ax.set_title("e(q, k)", loc="left", color=GREY, fontsize=10)
    bar.ax.tick_params(length=0)
    bar.outline.set_visible(False)


def _draw_surface(axis: Axes, side: np.ndarray, surface: np.ndarray, levels: np.ndarray) -> ContourSet:
    filled = axis.contourf(side, side, surface, levels, cmap=SCORE_COLORS, vmin=levels[0], vmax=levels[-1])
    if np.ptp(surface) > 0:
        axis.contour(side, side, surface, levels, colors="black", linewidths=0.5, alpha=0.35, linestyles="solid")
    else:
        axis.text(0, -0.93 * REACH, f"flat: {surface.flat[0]:g} for every key", ha="center", color=GREY)
    axis.set(aspect="equal", xticks=[-2, 0, 2], yticks=[-2, 0, 2])
    axis.tick_params(length=0)
    return filled


def _draw_keys(axis: Axes) -> None:
    for label, (x, y) in KEYS.items():
        axis.plot(x, y, "o", color="white", markeredgecolor="black", markersize=13, markeredgewidth=0.9)
        axis.text(x, y - 0.02, label, ha="center", va="center", fontsize=9)


def _draw_query(axis: Axes, name: str) -> None:
    x, y = QUERIES[name]
    halo = [patheffects.withStroke(linewidth=4, foreground="white")]
    arrow = {"arrowstyle": "-|>,head_width=0.35,head_length=0.6", "color": INK[name], "linewidth": 2.4}
    arrow |= {"shrinkA": 0, "shrinkB": 0, "path_effects": halo}
    axis.annotate("", (x, y), (0, 0), arrowprops=arrow)
    axis.text(1.2 * x, 1.2 * y, name, color=INK[name], ha="center", va="center", weight="bold", path_effects=halo)


def _draw_positions(score: Score, *axes: Axes) -> None:
    """e_i for every position i, one panel a query, for the keys in their order and in the opposite one."""
    key_SD = torch.tensor(list(KEYS.values()))
    scores, turned = (_scores(score, keys, DRAWN).numpy() for keys in (key_SD, key_SD.flip(0)))
    top = float(np.abs(np.concatenate([scores, turned])).max()) or 1.0
    for name, axis, bars, rings in zip(DRAWN, axes, scores, turned, strict=True):
        _draw_bars(axis, bars, rings, top)
        _draw_small_query(axis, name)
        axis.set_title(f"score of every position for {name}")
    axes[1].set_yticklabels([])


def _draw_bars(axis: Axes, bars: np.ndarray, rings: np.ndarray, top: float) -> None:
    position = np.arange(1, len(bars) + 1)
    order = " ".join(KEYS)
    axis.bar(position, bars, width=0.6, color=SCORE_COLORS(0.5 + 0.45 * bars / top), edgecolor=GREY, label=order)
    axis.plot(position, rings, "o", color="black", fillstyle="none", markersize=8, label=order[::-1])
    axis.axhline(0, color=GREY, linewidth=0.8)
    axis.set(ylim=(-1.1 * top, 2.1 * top), xticks=position, xlabel="position i of the key")
    axis.tick_params(length=0)
    handles, _ = axis.get_legend_handles_labels()
    axis.legend(handles=handles[::-1], title="keys in the order", loc="upper left", frameon=False, alignment="left")


def _draw_small_query(axis: Axes, name: str) -> None:
    small = axis.inset_axes((0.69, 0.69, 0.29, 0.29))
    small.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), xticks=[], yticks=[])
    _draw_query(small, name)


def _draw_weights(score: Score, axis: Axes) -> None:
    """softmax over the keys for every query, as `attend` returns it."""
    query_TD, key_SD = torch.tensor(list(QUERIES.values())), torch.tensor(list(KEYS.values()))
    _, weight_TS = saccade.attend(query_TD, key_SD, key_SD, score=score, return_weights=True)
    axis.imshow(weight_TS.numpy(), cmap=WEIGHT_COLORS, vmin=0, vmax=1, aspect="auto")
    for (t, s), weight in np.ndenumerate(weight_TS.numpy()):
        axis.text(s, t, f"{weight:.2f}", ha="center", va="center", color="white" if weight > 0.6 else "black")
    _draw_grid(axis, *weight_TS.shape)
    axis.set_xlabel("key, in this order" if score.reads_position else "key")
    axis.set_title("softmax weights: a row a query")


def _draw_grid(axis: Axes, num_queries: int, num_keys: int) -> None:
    axis.set_xticks(range(num_keys), list(KEYS), color="black")
    axis.set_yticks(range(num_queries), list(QUERIES))
    for label in axis.get_yticklabels():
        label.set(color=INK.get(label.get_text(), "black"), weight="bold" if label.get_text() in INK else "normal")
    axis.set_xticks(np.arange(num_keys - 1) + 0.5, minor=True)
    axis.set_yticks(np.arange(num_queries - 1) + 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=2)
    axis.tick_params(which="both", length=0)
    axis.spines[:].set_visible(False)


def _scores(score: Score, key_SD: Tensor, names: tuple[str, ...]) -> Tensor:
    query_TD = torch.tensor([QUERIES[name] for name in names])
    return score(query_TD, score.memory(key_SD))


def _levels(top: float) -> np.ndarray:
    """Round numbers around 0; where all is 0, a band of its own for it."""
    if top == 0:
        return np.linspace(-1.1, 1.1, 12)
    return np.asarray(MaxNLocator(nbins=14, symmetric=True, steps=[1, 2, 2.5, 5, 10]).tick_values(-top, top))


def png(figure: Figure) -> bytes:
    """The figure in its 256 commonest colours: a third of the size, and to the eye the same."""
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]
    plt.close(figure)
    colors, place, count = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    palette = colors[np.argsort(-count, kind="stable")[:256]]
    nearest = np.square(colors[:, None].astype(int) - palette).sum(-1).argmin(-1).astype(np.uint8)
    image = Image.fromarray(nearest[place].reshape(pixels.shape[:2]))
    image.putpalette(palette.tobytes())
    png = io.BytesIO()
    image.save(png, format="png", optimize=True)
    return png.getvalue()


if __name__ == "__main__":
    main()
