"""Curves: round ticks, a smooth line that lags nowhere, no spike lost, files that are whole."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.inspection.pages import curves
from saccade.inspection.pages.curves import Line

VALUES = st.floats(-1e9, 1e9)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 41.5, [0, 10, 20, 30, 40, 50]),
        (0, 100.00000000000004, [0, 20, 40, 60, 80, 100]),  # as sacreBLEU says 100
        (1.4, 9.7, [0, 2, 4, 6, 8, 10]),
        (0, 0.001, [0, 0.0002, 0.0004, 0.0006, 0.0008, 0.001]),
        (3, 3, [3, 4]),
        (0, 0, [0, 0.2]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert curves.choose_ticks(low, high, 5) == expected


@given(VALUES, VALUES)
def test_ticks_reach_around_every_value(one: float, two: float) -> None:
    low, high = sorted((one, two))
    found = curves.choose_ticks(low, high, 5)
    slack = 1e-8 * (found[-1] - found[0]) + 1e-9 * max(abs(low), abs(high))
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    assert 2 <= len(found) <= 7
    assert found == sorted(set(found))


def test_smoothing_keeps_lines_and_drops_spikes() -> None:
    assert curves.smooth([3.0] * 7, 4) == pytest.approx([3.0] * 7)
    assert curves.smooth([1.0, 1.0, 1.0, 99.0, 1.0, 1.0, 1.0], 4) == pytest.approx([1.0] * 7)
    rising = curves.smooth([float(x) for x in range(101)], 5)
    assert rising[50] == pytest.approx(50)  # no lag
    assert curves.smooth([], 5) == []


def test_only_long_noisy_lines_are_smoothed() -> None:
    points = [(float(x), float(x % 2)) for x in range(curves.MANY_POINTS)]
    assert "smooth" in picture(Line("a", points, is_noisy=True))
    assert "smooth" not in picture(Line("a", points[1:], is_noisy=True))
    assert "smooth" not in picture(Line("a", points))


def test_numbers_are_short() -> None:
    assert [curves.format_number(x) for x in (0.0, 0.0002, 31.567, 9319.4, 15000, 2.5e6)] == [
        "0", "0.0002", "31.57", "9,319", "15k", "2.5M",
    ]  # fmt: skip


def picture(*lines: Line, **options: bool) -> str:
    return curves.draw_chart(
        lines, label="words", x_label="step", x_end=max(x for line in lines for x, _ in line.points), **options
    )


def test_a_long_line_is_thinned_but_keeps_its_extremes() -> None:
    points = [(float(x), 500.0 if x == 7777 else float(x % 13)) for x in range(20_000)]
    found = json.loads(unescape(re.findall(r"data-lines='([^']*)'", picture(Line("a", points)))[0]))[0]["points"]
    assert len(found) <= curves.MOST_POINTS + 2
    assert [x for *_, x, y in found if y == 500] == [7777]


def test_wild_values_do_not_set_the_scale() -> None:
    points = [(float(x), 1e9 if x == 50 else 2.0) for x in range(200)]
    assert "1000M" not in picture(Line("loss", points, is_noisy=True))
    assert "1000M" in picture(Line("loss", points))


def test_the_best_point_is_marked_once() -> None:
    found = picture(Line("BLEU", [(1, 10.0), (2, 30.0), (3, 30.0)], best="max"))
    assert re.findall("<title>(.*?)</title>", found) == ["BLEU: best 30 at 2"]
    assert re.findall("<title>(.*?)</title>", picture(Line("loss", [(1, 9.0), (2, 3.0)], best="min"))) == [
        "loss: best 3 at 2"
    ]


@pytest.mark.parametrize(
    "points", [[(0.0, 0.0)], [(5.0, 1.0)], [(1.0, -2.0), (2.0, -2.0)], [(1.0, 3.0), (2.0, 3.0000000000000004)]]
)
def test_degenerate_lines_are_drawn(points: list[curves.Point]) -> None:
    assert "nan" not in picture(Line("a", points, is_noisy=True, best="min"))


def test_no_points_no_picture() -> None:
    assert curves.draw_chart([Line("a", [])], label="", x_label="", x_end=0.0) == ""
    assert curves.draw_legend([Line("a", [(0, 0)])]) == ""
