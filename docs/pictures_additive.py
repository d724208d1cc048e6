"""Draws docs/additive-*.png for docs/additive.md: the wall, shared reciprocals, the guard, errors, the sine series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from numpy.typing import NDArray

from pictures import GREY, STYLE, png
from saccade.attention.kernels.additive.series import BASE, COEFFICIENTS, ERROR, RANGE

Floats = NDArray[np.floating]
FOLDER = Path(__file__).parent
DPI, WIDE = 150, 7.6  # inches
OURS, PEERS, WALL_INK, COOL = "#e08214", "#a3a3a3", "#b2182b", "#2166ac"
INK = "#222222"
WALL = 4.0
BOUND = f"the bound,\n{ERROR * 1e4:g} $\\cdot\\ 10^{{-4}}$"

# T terms/s on an H200, measured (`saccade bench additive`): what, how it is written, the bar, whose.
RATES = [
    ("eager broadcast", "0.17–0.23", 0.23, "peer"),
    ("torch.compile", "0.73–0.91", 0.91, "peer"),
    ("Triton tile, hardware tanh", "1.1–1.36", 1.36, "peer"),
    ("CUDA tile, hardware tanh", "3.8", 3.8, "peer"),
    ("shared reciprocals, first sketch", "6.0", 6.0, "ours"),
    ("shared reciprocals, scores here", "7.0", 7.0, "ours"),
    ("the same, whole attention", "5.1", 5.1, "ours"),
    ("sine series, whole attention, bfloat16", "13.3", 13.3, "ours"),
]


def main() -> None:
    for name, draw in PICTURES.items():
        path = FOLDER / f"additive-{name}.png"
        with plt.rc_context({**STYLE, "font.size": 9.5, "axes.titlesize": 10.5}):
            path.write_bytes(png(draw()))
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def _figure(height: float) -> Figure:
    return plt.figure(figsize=(WIDE, height), dpi=DPI, layout="constrained")


def _bare(axes: Axes, *kept: str) -> None:
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(side in kept)
    axes.tick_params(length=0)


# The wall.


def draw_wall() -> Figure:
    figure = _figure(2.9)
    axes = figure.subplots()
    for place, (_, text, rate, whose) in enumerate(RATES):
        colour = OURS if whose == "ours" else PEERS
        axes.barh(place, rate, height=0.66, color=colour)
        label = {"x": rate + 0.15, "ha": "left", "color": INK}
        if WALL - 1 < rate < WALL:  # the wall would cross it
            label = {"x": rate - 0.15, "ha": "right", "color": "white"}
        axes.text(y=place, s=text, va="center", **label)
    axes.axvline(WALL, color=WALL_INK, linewidth=1.6)
    axes.text(WALL + 0.15, 0.0, "the tanh unit: 4.0", color=WALL_INK, va="center", weight="bold")
    axes.set_yticks(range(len(RATES)), [name for name, *_ in RATES], color=INK)
    axes.set(xlim=(0, 17), xticks=range(0, 17, 2), xlabel="T terms/s on one H200, forward")
    axes.invert_yaxis()
    _bare(axes, "left", "bottom")
    return figure


# How fractions share a reciprocal.


def draw_fractions() -> Figure:
    figure = _figure(3.3)
    left, right = figure.subplots(1, 2, width_ratios=(2.5, 1))
    _draw_joins(left)
    _draw_load(right)
    return figure


def _box(axes: Axes, x: float, y: float, text: str, *, width: float, colour: str, height: float = 0.62) -> None:
    look = {"boxstyle": "round,pad=0,rounding_size=0.12", "facecolor": "white", "edgecolor": colour, "linewidth": 1.4}
    axes.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, **look))
    axes.text(x, y - 0.01, text, ha="center", va="center", color=INK)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    arrow = {"arrowstyle": "-|>,head_width=0.2,head_length=0.4", "color": GREY, "linewidth": 1.1}
    axes.annotate("", end, start, arrowprops={**arrow, "shrinkA": 0, "shrinkB": 0})


def _draw_joins(axes: Axes) -> None:
    """Four denominators in a row, joined one by one, then one reciprocal."""
    columns = (0.9, 2.7, 4.5, 6.3)
    for d, x in enumerate(columns):
        _box(axes, x, 4.0, f"$A_{d} = c_{d} + E_{d}F_{d}$", width=1.64, colour=COOL)
    _box(axes, columns[0], 2.6, "$\\dfrac{1}{A_0}$", width=1.25, colour=OURS, height=1.0)
    joined = ("$\\dfrac{A_0 + A_1}{A_0 A_1}$", "$\\dfrac{n A_2 + m}{m A_2}$", "$\\dfrac{n A_3 + m}{m A_3}$")
    for text, x, before in zip(joined, columns[1:], columns, strict=False):
        _box(axes, x, 2.6, text, width=1.25, colour=OURS, height=1.0)
        _arrow(axes, (before + 0.64, 2.6), (x - 0.66, 2.6))
    for x in columns:
        _arrow(axes, (x, 3.68), (x, 3.14))
    _arrow(axes, (columns[-1], 2.08), (columns[-1], 1.55))
    _box(axes, columns[-1], 1.2, "$r = 1 / m$", width=1.25, colour=WALL_INK)
    _arrow(axes, (columns[-1] - 0.64, 1.2), (columns[-2] + 0.66, 1.2))
    _box(axes, columns[-2], 1.2, "$e + n r$", width=1.25, colour=OURS)
    note = "$n$, $m$: numerator and denominator\nof the fraction before"
    axes.text(columns[0] - 0.62, 1.2, note, color=GREY, va="center", fontsize=9)
    _draw_counts(axes)
    axes.set(xlim=(-0.05, 8.6), ylim=(0.2, 4.7), xticks=[], yticks=[])
    axes.set_title("four fractions, one reciprocal")
    _bare(axes)


def _draw_counts(axes: Axes) -> None:
    for y, text in ((4.0, "4"), (2.6, "6"), (1.2, "1 + 1")):
        axes.text(8.1, y, text, ha="center", va="center", color=INK, fontsize=11)
    axes.text(8.1, 4.52, "operations", ha="center", va="center", color=GREY, fontsize=9)
    axes.plot([7.6, 8.6], [0.78, 0.78], color=GREY, linewidth=0.8)
    axes.text(8.1, 0.5, "12", ha="center", va="center", color=INK, fontsize=11, weight="bold")
    axes.text(7.35, 0.5, "for four terms: 3 a term", ha="right", va="center", color=INK)


def _draw_load(axes: Axes) -> None:
    """Clocks of a warp for a term, on the two units."""
    sizes = np.array([1, 2, 3, 4, 8])
    place = np.arange(len(sizes))
    axes.bar(place, 8 / sizes, width=0.62, color=[WALL_INK if 8 / m > 3 else "#e6b8b7" for m in sizes])
    for x, m in zip(place, sizes, strict=True):
        colour = "white" if 8 / m > 3 else INK
        axes.text(x, 8 / m - 0.18, f"{8 / m:.2g}", ha="center", va="top", color=colour, fontsize=9)
    axes.axhline(3, color=OURS, linewidth=1.8)
    axes.text(1.42, 3.18, "all other work: 3", color=OURS, weight="bold", fontsize=9.5)
    axes.set_xticks(place, [str(m) for m in sizes])
    axes.set(xlabel="fractions to a reciprocal", ylim=(0, 9.2), yticks=[])
    axes.set_title("clocks a term: the slow unit")
    _bare(axes, "bottom")


# The guard.


def _tile_bounds(
    size: float, draws: np.random.Generator, width: int, tiles: int, rows: int = 64
) -> tuple[Floats, Floats]:
    """For tiles of 64 x 64 pairs: log2 of what four denominators, and two, can multiply to (docs/additive.md)."""
    v = draws.standard_normal((tiles, width))
    turned = np.where((v < 0) != (np.arange(width) % 2 == 1), -1.0, 1.0)
    folded = np.log2(np.abs(v).max(-1, keepdims=True) / np.abs(v)) + 1
    bounds = []
    for extra in (folded, np.zeros_like(folded)):
        x = size * draws.standard_normal((tiles, rows, width)) * turned[:, None]
        bits = np.maximum(2 * np.log2(np.e) * x, 0) + extra[:, None]
        bounds.append([bits.reshape(tiles, rows, -1, group).sum(-1).max((1, 2)) for group in (4, 2)])
    (query_four, query_two), (key_four, key_two) = bounds
    return query_four + key_four, query_two + key_two


def draw_guard() -> Figure:
    draws, sizes = np.random.default_rng(7), np.arange(0.5, 5.01, 0.1)
    shares = []
    for size in sizes:
        four, two = _tile_bounds(float(size), draws, width=256, tiles=400)
        by_four, by_two = four <= 120, (four > 120) & (two <= 120)
        shares.append((by_four.mean(), by_two.mean(), 1 - by_four.mean() - by_two.mean()))
    figure = _figure(2.5)
    axes = figure.subplots()
    axes.stackplot(sizes, 100 * np.array(shares).T, colors=(OURS, "#fdb863", "#d8d8d8"), linewidth=0)
    middle = [float((sizes * share).sum() / share.sum()) for share in np.array(shares).T]
    for x, text in zip(middle, ("four to a reciprocal", "two to a reciprocal", "from q + k itself"), strict=True):
        axes.text(x, 50, text, ha="center", va="center", color=INK, weight="bold")
    axes.set(xlim=(sizes[0], sizes[-1]), ylim=(0, 100), xlabel="standard deviation of q and of k", ylabel="% of tiles")
    _bare(axes)
    axes.tick_params(pad=6)
    return figure


# Errors.


def _fused(a: Floats, b: Floats, c: Floats) -> Floats:
    """a b + c, rounded once to float32."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def shared(query_PD: Floats, key_PD: Floats, v_D: Floats, teams: int) -> Floats:
    """Scores as the kernel makes them, in float32: fours of fractions, teams that take 16 dimensions in turn."""
    width, one = len(v_D), np.float32(1)
    turned = np.where((v_D < 0) != (np.arange(width) % 2 == 1), -one, one)
    largest = np.abs(v_D).max()
    c = one / (turned * v_D / largest)
    below_PD = _fused(np.exp(2 * turned * query_PD) * c, np.exp(2 * turned * key_PD), c)
    score = np.full(len(query_PD), (turned * v_D).sum(dtype=np.float32))
    for team in range(teams):
        running = np.zeros_like(score)
        for d in range(0, width, 4):
            if d // 16 % teams == team:
                running = _add_four(running, *below_PD[:, d : d + 4].T)
        score = _fused(-2 * largest, running, score)
    return score


def _add_four(total: Floats, *below: Floats) -> Floats:
    a, b, *others = below
    above, common = a + b, a * b
    for other in others:
        above, common = _fused(above, other, common), common * other
    return _fused(above, np.float32(1) / common, total)


def draw_errors() -> Figure:
    draws = np.random.default_rng(0)
    query, key = (draws.standard_normal((20_000, 256)).astype(np.float32) for _ in range(2))
    v = (draws.standard_normal(256) / 16).astype(np.float32)
    exact = np.tanh(query.astype(np.float64) + key) @ v.astype(np.float64)
    found = {"plain float32": np.tanh(query + key) @ v}
    found |= {name: shared(query, key, v, teams) for name, teams in TEAMS.items()}
    errors = {name: 1e7 * (score - exact) for name, score in found.items()}
    errors = {name: error - error.mean() for name, error in errors.items()}  # a shift of all scores cancels
    figure = _figure(2.7)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    _draw_histograms(left, errors)
    _draw_sizes(right, errors)
    return figure


TEAMS = {"one running sum": 1, "ours, 2 teams": 2, "ours, 4 teams": 4, "ours, 8 teams": 8}
ERROR_INK = {"plain float32": GREY, "one running sum": "#d8d8d8"}


def _draw_histograms(axes: Axes, errors: dict[str, Floats]) -> None:
    bins = np.linspace(-6, 6, 97)
    shown = ("plain float32", "ours, 2 teams")
    for name in shown:
        axes.hist(errors[name], bins, density=True, histtype="stepfilled", alpha=0.25, color=ERROR_INK.get(name, OURS))
        axes.hist(errors[name], bins, density=True, histtype="step", linewidth=1.5, color=ERROR_INK.get(name, OURS))
    axes.text(0.9, 0.36, shown[0], color=GREY, weight="bold")
    axes.text(2.1, 0.12, shown[1], color=OURS, weight="bold")
    axes.set(xlim=(-6, 6), yticks=[], xlabel="error of a score, $10^{-7}$")
    axes.set_title("20,000 pairs, D = 256, against float64")
    _bare(axes, "bottom")


def _draw_sizes(axes: Axes, errors: dict[str, Floats]) -> None:
    for place, (name, error) in enumerate(errors.items()):
        size = float(np.sqrt(np.square(error).mean()))
        print(f"{name}: RMS {size:.2f}e-7, largest {np.abs(error).max():.1f}e-7")
        axes.barh(place, size, height=0.62, color=ERROR_INK.get(name, OURS))
        pale = name == "one running sum"
        x, side = (size + 0.05, "left") if pale else (size - 0.05, "right")
        axes.text(x, place, f"{size:.2f}", va="center", ha=side, color=INK if pale else "white")
    twice = 2 * float(np.sqrt(np.square(errors["plain float32"]).mean()))
    axes.axvline(twice, color=WALL_INK, linewidth=1.4)
    axes.text(twice + 0.04, 0, "twice plain:\nallowed", color=WALL_INK, va="center", weight="bold", linespacing=1.1)
    axes.set_yticks(range(len(errors)), list(errors), color=INK)
    axes.set(xlim=(0, 2.6), xticks=(0, 1, 2), xlabel="RMS error of a score, $10^{-7}$")
    axes.invert_yaxis()
    _bare(axes, "left", "bottom")


# The series.


def fit(terms: int, reach: float, period: float, points: int = 401, rounds: int = 60) -> tuple[float, Floats]:
    """The smallest largest error of odd sines with this period on [0, reach], by Lawson's weights."""
    x = reach * np.sin(np.linspace(0, np.pi / 2, points))
    sines, wanted, weight = np.sin(np.outer(x, _frequencies(terms, period))), np.tanh(x), np.ones(points)
    best: tuple[float, Floats] = (np.inf, np.zeros(terms))
    for _ in range(rounds):
        root = np.sqrt(weight)
        coefficients = np.linalg.lstsq(sines * root[:, None], wanted * root, rcond=1e-14)[0]
        error = np.abs(sines @ coefficients - wanted)
        best = min(best, (float(error.max()), coefficients), key=lambda found: found[0])
        weight *= error / error.max() + 1e-3
        weight /= weight.mean()
    return best


def _frequencies(terms: int, period: float) -> Floats:
    return np.pi / period * np.arange(1, 2 * terms, 2)


def best_fit(terms: int, reach: float) -> tuple[float, Floats]:
    """Frequencies and coefficients, over periods from 1.05 to 2.8 times the range."""
    periods = reach * np.linspace(1.05, 2.8, 71)
    period = min(periods, key=lambda period: fit(terms, reach, float(period), 201, 25)[0])
    return _frequencies(terms, float(period)), fit(terms, reach, float(period))[1]


def draw_series() -> Figure:
    figure = _figure(3.1)
    axes = figure.subplots()
    x = np.linspace(0, RANGE + 0.4, 2561)
    found = {terms: best_fit(terms, RANGE) for terms in (4, 8, 10, 12)}
    found[len(COEFFICIENTS)] = (BASE * np.arange(1, 2 * len(COEFFICIENTS), 2), np.array(COEFFICIENTS))
    for terms, (frequencies, coefficients) in found.items():
        error = np.abs(np.sin(np.outer(x, frequencies)) @ coefficients - np.tanh(x))
        colour = OURS if terms == len(COEFFICIENTS) else plt.get_cmap("Blues")(0.25 + 0.06 * terms)
        axes.plot(x, np.maximum(error, 1e-12), color=colour, linewidth=1.9 if colour == OURS else 1.1)
        worst = error[x <= RANGE].max()
        axes.text(-0.1, worst, f"M = {terms}", color=colour, ha="right", va="center", weight="bold")
        print(f"series: {terms} terms, error {worst:.2e}")
    _draw_range(axes, float(x[-1]))
    axes.set(yscale="log", ylim=(1e-8, 1e-1), xlim=(-0.75, x[-1]), xticks=range(int(RANGE) + 1))
    axes.set(xlabel="x = q + k", ylabel="|tanh x - series|")
    axes.minorticks_off()
    _bare(axes, "bottom")
    return figure


def _draw_range(axes: Axes, last: float) -> None:
    axes.axvspan(RANGE, last, color="#f0f0f0", zorder=0)
    axes.text(last + 0.06, 3e-8, "beyond:\nthe exact\nkernel", color=GREY, va="center")
    axes.plot([0, last], [ERROR, ERROR], color=WALL_INK, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.text(last + 0.06, ERROR, BOUND, color=WALL_INK, va="center", weight="bold")


PICTURES = {
    "wall": draw_wall,
    "fractions": draw_fractions,
    "guard": draw_guard,
    "errors": draw_errors,
    "series": draw_series,
}

if __name__ == "__main__":
    main()
