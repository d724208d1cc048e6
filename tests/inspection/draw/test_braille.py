"""Curves in the terminal: points in their places."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from saccade.inspection.draw import braille


def test_a_log_gives_the_steps_where_something_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"step": 10, "loss": 2.5}\n{"step": 20, "loss": null}\n{"step": 30, "loss": 0.5, "x": 1}\n', "utf-8"
    )
    assert braille.read_curve(path, "loss") == ([10, 30], [2.5, 0.5])
    assert braille.read_curve(path, "x") == ([30], [1])


def test_a_rising_line_runs_from_the_lower_left_to_the_upper_right() -> None:
    lines = braille.draw_dots([1, 2], [0.0, 5.0])
    blank = chr(0x2800)
    assert [len(line) for line in lines] == [braille.WIDTH] * braille.HEIGHT
    assert lines[-1][0] != blank != lines[0][-1]
    assert lines[0][0] == lines[-1][-1] == blank
    assert braille.draw_dots([1, 2], [5.0, 0.0])[0][0] != blank


def test_a_scale_can_be_shared() -> None:
    console = Console(file=(shown := io.StringIO()), width=80)
    flat = {"low": ([0.0, 1.0], [0.0, 0.0]), "high": ([0.0, 1.0], [9.0, 9.0])}
    console.print(braille.in_terminal(flat, console=console, between=(0.0, 9.0), end="all"))
    rows = [line for line in shown.getvalue().splitlines() if "│" in line]
    drawn = [[any(cell > chr(0x2800) for cell in part) for part in row.split("│")[1:]] for row in rows]
    assert drawn == [[False, True], *[[False, False]] * (braille.HEIGHT - 2), [True, False]]
    assert "all" in shown.getvalue()
    assert "step" not in shown.getvalue()


def test_ascii_is_enough() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=file, width=80)
    console.print(braille.in_terminal({"loss": ([1.0, 2.0], [0.0, 6.0])}, console=console))
    file.seek(0)
    _, *rows, axis, end = file.read().splitlines()
    assert [row[:10] for row in rows] == ["    6.00 |", *["         |"] * (braille.HEIGHT - 2), "    0.00 |"]
    drawn = [row[10:].rstrip() for row in rows]
    assert [len(row) for row in drawn] == sorted((len(row) for row in drawn), reverse=True)
    assert set("".join(drawn)) == set(" .':")
    assert (axis.strip(), end.strip()) == ("+" + "-" * braille.WIDTH, "step 2")


def test_every_column_has_a_dot_even_of_one_point_or_a_flat_line() -> None:
    for steps, values in (([7.0], [3.0]), ([1.0, 9.0], [2.0, 2.0]), ([1.0, 2.0, 9.0], [0.0, 9.0, 1.0])):
        columns = zip(*braille.draw_dots(steps, values), strict=True)
        assert all(any(cell != chr(0x2800) for cell in column) for column in columns)


def test_two_curves_fit_eighty_columns_with_their_extremes() -> None:
    console = Console(file=(shown := io.StringIO()), width=80)
    both = {"loss": ([1.0, 1000.0], [7.25, 0.5]), "BLEU": ([500.0, 1000.0], [12.5, 97.0])}
    console.print(braille.in_terminal(both, console=console))
    text = shown.getvalue()
    for expected in ("loss", "BLEU", "7.25", "0.50", "12.50", "97.00", "step 1,000"):
        assert expected in text
    assert "…" not in text
