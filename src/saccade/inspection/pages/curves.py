"""Curves as SVG, for a page that loads nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup

from saccade.inspection.pages.render import render

Point = tuple[float, float]

WIDTH, HEIGHT = 480, 250
LEFT, RIGHT, TOP, BOTTOM = 60, 14, 14, 34
MOST_POINTS = 400  # a line of more has several in a pixel
MOST_DOTS = 60  # points of a line that are also drawn as dots
MANY_POINTS = 40  # fewer are shown as they are, without smoothing
TINY, ROUNDING = 1e-30, 1e-9


class Line(NamedTuple):
    """A named curve, points in order of x. Noisy ones are smoothed over the faint raw line; `best` is max or min."""

    name: str
    points: Sequence[Point]
    is_noisy: bool = False
    best: str | None = None

    @property
    def is_smoothed(self) -> bool:
        """Return True if it is noisy, and long enough for that to matter."""
        return self.is_noisy and len(self.points) >= MANY_POINTS


class Scale(NamedTuple):
    """A linear map from values to places: `low` goes to `start`, `high` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def draw_chart(lines: Sequence[Line], *, label: str, x_label: str, x_end: float, from_zero: bool = False) -> Markup:
    """Draw lines as SVG, x from 0 to `x_end`; `label` says them in words. Without points there is no picture."""
    lines = [line for line in lines if line.points]
    if not lines:
        return Markup()
    y_values = [y for line in lines for y in _usual_values(line)] + [0.0] * from_zero
    y_ticks = choose_ticks(min(y_values), max(y_values), 5)
    x, y = Scale(0, x_end or 1, LEFT, WIDTH - RIGHT), Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    return render(
        "chart.svg",
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=WIDTH - RIGHT,
        top=TOP,
        bottom=HEIGHT - BOTTOM,
        label=label,
        x_label=x_label,
        x_ticks=_x_ticks(x),
        y_ticks=[(y(value), format_number(value)) for value in y_ticks],
        data=_data(lines, x, y),
        lines=[_place(line, number, x, y) for number, line in enumerate(lines)],
    )


def draw_legend(lines: Sequence[Line]) -> Markup:
    """Draw a sample of each line beside its name; one plain line alone needs no legend."""
    marks: list[tuple[str, str]] = []
    for number, line in enumerate(line for line in lines if line.points):
        if line.is_smoothed:
            marks += [(f"line-{number} smooth", f"{line.name}, smoothed"), (f"line-{number} raw", "as measured")]
        else:
            marks.append((f"line-{number} ", line.name))
    return render("legend.html", marks=marks) if len(marks) > 1 else Markup()


def draw_figure(heading: str, chart: Markup, lines: Sequence[Line], said: str, *, unit: str = "") -> Markup:
    """Put a chart between its heading and its legend; `said` is read below until somebody points at a curve."""
    return render("figure.html", heading=heading, unit=unit, chart=chart, legend=draw_legend(lines), said=said)


def choose_ticks(low: float, high: float, most: int) -> list[float]:
    """Return about `most` round values, 1, 2 or 5 times a power of ten apart, that reach from `low` to `high`."""
    size = max(abs(low), abs(high))
    span = high - low
    if span <= max(1e-6 * size, TINY):  # one value, up to rounding
        span = size if size > TINY else 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor * most >= span * (1 - ROUNDING))
    first, last = math.floor(low / step + ROUNDING), math.ceil(high / step - ROUNDING)
    return [float(f"{index * step:.10g}") for index in range(first, max(last, first + 1) + 1)]


def smooth(values: Sequence[float], window: float) -> list[float]:
    """Average what came before and what comes after, each forgotten by 1 - 1/window a step; drop lone spikes."""
    calm = [median(values[max(0, at - 2) : at + 3]) for at in range(len(values))]
    before, after = _fading_mean(calm, window), _fading_mean(calm[::-1], window)[::-1]
    return [(left + right) / 2 for left, right in zip(before, after, strict=True)]


def format_number(value: float) -> str:
    """Write a number as a person does: 15k, 2.5M."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.4g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.4g}k"
    return f"{value:,.0f}" if abs(value) >= 1e3 or value == round(value) else f"{value:.4g}"


def best_point(line: Line) -> Point | None:
    """Return the first of the best points, where the line has a best."""
    if line.best is None or not line.points:
        return None
    return (max if line.best == "max" else min)(line.points, key=lambda point: point[1])


def _usual_values(line: Line) -> list[float]:
    """Return the values that set the scale: of a long noisy line all but the wildest hundredth at either end."""
    values = sorted(y for _, y in line.points)
    wild = len(values) // 100 if line.is_smoothed else 0
    return values[wild : len(values) - wild]


def _place(line: Line, number: int, x: Scale, y: Scale) -> dict[str, Any]:
    """Return what the template draws of a line: its paths, its dots where they are few, and its best point."""
    kinds = {" raw": line.points, " smooth": _smooth_points(line)} if line.is_smoothed else {"": line.points}
    paths = {kind: _path(points, x, y) for kind, points in kinds.items()}
    are_few = not line.is_smoothed and len(line.points) <= MOST_DOTS
    dots = [(x(a), y(b)) for a, b in line.points] if are_few else []
    return {"number": number, "paths": paths, "dots": dots, "best": _place_best(line, number, x, y)}


def _place_best(line: Line, number: int, x: Scale, y: Scale) -> dict[str, Any] | None:
    point = best_point(line)
    if point is None:
        return None
    across, down = x(point[0]), y(point[1])
    is_above = down > TOP + 24 and (line.best == "max" or down > HEIGHT - BOTTOM - 24)
    text = f"best {format_number(point[1])}"
    return {
        "number": number,
        "x": across,
        "y": down,
        "text": text,
        "text_y": down + (-11 if is_above else 21),
        "anchor": "end" if across > WIDTH / 2 else "start",
        "title": f"{line.name}: {text} at {point[0]:,.0f}",
    }


def _fading_mean(values: Sequence[float], window: float) -> list[float]:
    keep = 1 - 1 / max(1.0, window)
    sums = accumulate(values, lambda total, value: total * keep + value)
    weights = accumulate((1.0 for _ in values), lambda total, value: total * keep + value)
    return [total / weight for total, weight in zip(sums, weights, strict=True)]


def _smooth_points(line: Line) -> list[Point]:
    values = smooth([y for _, y in line.points], max(4.0, len(line.points) / 40))
    return [(x, value) for (x, _), value in zip(line.points, values, strict=True)]


def _thin(points: Sequence[Point]) -> list[Point]:
    """Keep at most MOST_POINTS: of each stretch the lowest and the highest, so that no spike is lost."""
    if len(points) <= MOST_POINTS:
        return list(points)
    size = math.ceil(2 * len(points) / MOST_POINTS)
    kept = [points[0], points[-1]]
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        kept += [least_and_most(stretch, key=lambda point: point[1]) for least_and_most in (min, max)]
    return sorted(set(kept))


def _path(points: Sequence[Point], x: Scale, y: Scale) -> str:
    return "M" + " L".join(f"{x(a):.1f},{y(b):.1f}" for a, b in _thin(points))


def _x_ticks(x: Scale) -> list[tuple[float, str]]:
    """Return places and texts of ticks; one at the right end would lie under the axis' own name."""
    values = [value for value in choose_ticks(x.low, x.high, 5) if x.low <= value <= x.high]
    return [(x(value), format_number(value)) for value in values if x(value) < WIDTH - RIGHT - 50]


def _data(lines: Sequence[Line], x: Scale, y: Scale) -> str:
    """Return places and values of the lines as they are drawn, for the page's script."""
    drawn = [_thin(_smooth_points(line) if line.is_smoothed else line.points) for line in lines]
    content = [
        {"name": line.name, "points": [[round(x(a), 1), round(y(b), 1), a, float(f"{b:.5g}")] for a, b in points]}
        for line, points in zip(lines, drawn, strict=True)
    ]
    return json.dumps(content, separators=(",", ":"))
