"""Curves as SVG, for a page that loads nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from itertools import accumulate
from statistics import median
from typing import NamedTuple

Point = tuple[float, float]

WIDTH, HEIGHT = 480, 250
LEFT, RIGHT, TOP, BOTTOM = 60, 14, 14, 34
MOST_POINTS = 400  # a line of more has several in a pixel
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
        """Noisy, and long enough for that to matter."""
        return self.is_noisy and len(self.points) >= MANY_POINTS


class Scale(NamedTuple):
    """From values to places: a straight line through (low, start) and (high, end)."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def svg(lines: Sequence[Line], *, label: str, x_label: str, x_end: float, from_zero: bool = False) -> str:
    """An SVG picture, x from 0 to `x_end`, or nothing where no line has a point; `label` says it in words."""
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    y_values = [y for line in lines for y in _usual(line)] + [0.0] * from_zero
    y_ticks = ticks(min(y_values), max(y_values), 5)
    x, y = Scale(0, x_end or 1, LEFT, WIDTH - RIGHT), Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    drawn = "".join(_line(line, index, x, y) for index, line in enumerate(lines))
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0" aria-label="{escape(label)}" '
        f"data-lines='{_data(lines, x, y)}' data-x=\"{escape(x_label)}\">"
        f"{_axes(x, y, y_ticks, x_label)}{_clipped(drawn)}"
        f"{''.join(_best(line, index, x, y) for index, line in enumerate(lines))}</svg>"
    )


def legend(lines: Sequence[Line]) -> str:
    """What each line is, drawn as it is drawn; one plain line alone needs none."""
    marks = []
    for index, line in enumerate(line for line in lines if line.points):
        names = (
            [("smooth", f"{line.name}, smoothed"), ("raw", "as measured")] if line.is_smoothed else [("", line.name)]
        )
        marks += [_mark(f"line-{index} {kind}", name) for kind, name in names]
    return f'<ul class="legend">{"".join(marks)}</ul>' if len(marks) > 1 else ""


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart) that reach from `low` to `high`, about `most` of them."""
    size = max(abs(low), abs(high))
    span = high - low
    if span <= max(1e-6 * size, TINY):  # one value, up to rounding
        span = size if size > TINY else 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor * most >= span * (1 - ROUNDING))
    first, last = math.floor(low / step + ROUNDING), math.ceil(high / step - ROUNDING)
    return [float(f"{index * step:.10g}") for index in range(first, max(last, first + 1) + 1)]


def smoothed(values: Sequence[float], window: float) -> list[float]:
    """What came before and what comes after, each forgotten by 1 - 1/window a step; lone spikes are left out."""
    calm = [median(values[max(0, at - 2) : at + 3]) for at in range(len(values))]
    before, after = _fading_mean(calm, window), _fading_mean(calm[::-1], window)[::-1]
    return [(left + right) / 2 for left, right in zip(before, after, strict=True)]


def shown(value: float) -> str:
    """A number as a person writes it."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.4g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.4g}k"
    return f"{value:,.0f}" if abs(value) >= 1e3 or value == round(value) else f"{value:.4g}"


def best_of(line: Line) -> Point | None:
    """The first of the best points."""
    if line.best is None or not line.points:
        return None
    return (max if line.best == "max" else min)(line.points, key=lambda point: point[1])


def _usual(line: Line) -> list[float]:
    """The values that set the scale: of a long noisy line all but the wildest hundredth at either end."""
    values = sorted(y for _, y in line.points)
    wild = len(values) // 100 if line.is_smoothed else 0
    return values[wild : len(values) - wild]


def _line(line: Line, index: int, x: Scale, y: Scale) -> str:
    if not line.is_smoothed:
        dots = "".join(_dot(point, index, x, y) for point in line.points) if len(line.points) <= 60 else ""
        return _path(_fewer(line.points), f"line-{index}", x, y) + dots
    raw = _path(_fewer(line.points), f"line-{index} raw", x, y)
    return raw + _path(_fewer(_smooth_points(line)), f"line-{index} smooth", x, y)


def _fading_mean(values: Sequence[float], window: float) -> list[float]:
    keep = 1 - 1 / max(1.0, window)
    sums = accumulate(values, lambda total, value: total * keep + value)
    weights = accumulate((1.0 for _ in values), lambda total, value: total * keep + value)
    return [total / weight for total, weight in zip(sums, weights, strict=True)]


def _smooth_points(line: Line) -> list[Point]:
    values = smoothed([y for _, y in line.points], max(4.0, len(line.points) / 40))
    return [(x, value) for (x, _), value in zip(line.points, values, strict=True)]


def _fewer(points: Sequence[Point]) -> list[Point]:
    """At most MOST_POINTS: of each stretch the lowest and the highest, so that no spike is lost."""
    if len(points) <= MOST_POINTS:
        return list(points)
    size = math.ceil(2 * len(points) / MOST_POINTS)
    kept = [points[0], points[-1]]
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        kept += [least_and_most(stretch, key=lambda point: point[1]) for least_and_most in (min, max)]
    return sorted(set(kept))


def _path(points: Sequence[Point], look: str, x: Scale, y: Scale) -> str:
    places = " L".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
    return f'<path class="{look}" d="M{places}"/>'


def _dot(point: Point, index: int, x: Scale, y: Scale) -> str:
    return f'<circle class="dot line-{index}" cx="{x(point[0]):.1f}" cy="{y(point[1]):.1f}" r="2.5"/>'


def _clipped(drawn: str) -> str:
    """Nothing leaves the axes; a nested picture clips by itself."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    box = f'x="{LEFT}" y="{TOP - 6}" width="{width + 6}" height="{height + 8}"'
    return f'<svg {box} viewBox="{LEFT} {TOP - 6} {width + 6} {height + 8}">{drawn}</svg>'


def _best(line: Line, index: int, x: Scale, y: Scale) -> str:
    point = best_of(line)
    if point is None:
        return ""
    across, down = x(point[0]), y(point[1])
    anchor = "end" if across > WIDTH / 2 else "start"
    above = down > TOP + 24 and (line.best == "max" or down > HEIGHT - BOTTOM - 24)
    text = f"best {shown(point[1])}"
    return (
        f'<circle class="best line-{index}" cx="{across:.1f}" cy="{down:.1f}" r="5">'
        f"<title>{escape(f'{line.name}: {text} at {point[0]:,.0f}')}</title></circle>"
        f'<text class="best-label" x="{across:.1f}" y="{down + (-11 if above else 21):.1f}" '
        f'text-anchor="{anchor}">{text}</text>'
    )


def _axes(x: Scale, y: Scale, y_ticks: Sequence[float], x_label: str) -> str:
    rows = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{shown(value)}</text>'
        for value in y_ticks
    )
    # the axis' own name stands at its right end, so a tick there would lie under it
    columns = "".join(
        f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{shown(value)}</text>'
        for value in ticks(x.low, x.high, 5)
        if x.low <= value <= x.high and x(value) < WIDTH - RIGHT - 50
    )
    name = f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - BOTTOM + 20}" text-anchor="end">{escape(x_label)}</text>'
    return f'<g class="axes" aria-hidden="true">{rows}{columns}{name}</g>'


def _data(lines: Sequence[Line], x: Scale, y: Scale) -> str:
    """What the page's script needs to say values: places and numbers of the lines as they are drawn."""
    drawn = [_fewer(_smooth_points(line) if line.is_smoothed else line.points) for line in lines]
    content = [
        {"name": line.name, "points": [[round(x(a), 1), round(y(b), 1), a, float(f"{b:.5g}")] for a, b in points]}
        for line, points in zip(lines, drawn, strict=True)
    ]
    return escape(json.dumps(content, separators=(",", ":")))


def _mark(look: str, name: str) -> str:
    sample = f'<svg viewBox="0 0 24 8" aria-hidden="true"><path class="{look}" d="M1,4 L23,4"/></svg>'
    return f"<li>{sample}{escape(name)}</li>"
