"""A path of glimpses in the terminal: numbers where it looked, in any width, with and without colours."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console

from saccade.inspection.draw.half_blocks import TALLEST, WIDEST, in_terminal
from saccade.inspection.draw.heatmap import PLAIN_SHADES, SHADES
from saccade.inspection.draw.path import Scanpath, colour
from saccade.layers.glimpse_sensor import GlimpseSensor

CORNERS = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0)]  # top left, top right, bottom right


def scanpath(locations: list[tuple[float, float]], image_CYX: NDArray[np.uint8] | None = None) -> Scanpath:
    image_CYX = np.zeros((1, 60, 60), np.uint8) if image_CYX is None else image_CYX
    share_TV = torch.tensor([[0.25, 0.75]] * len(locations))
    return Scanpath(image_CYX, torch.tensor(locations), GlimpseSensor(3, 1), share_TV, ["cat", "été"])


def lines(path: Scanpath, *, width: int = 80, encoding: str = "utf-8") -> list[str]:
    """As a pipe shows it."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, color_system=None)
    console.print(in_terminal(path, console))
    file.seek(0)
    return file.read().splitlines()


def coloured(path: Scanpath, *, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=80, color_system="truecolor", force_terminal=True, legacy_windows=False)
    console.print(in_terminal(path, console))
    file.seek(0)
    return file.read()


def test_numbers_stand_where_it_looked_and_a_way_leads_to_each() -> None:
    shown = lines(scanpath(CORNERS))
    assert len(shown) == 30 + 1
    assert shown[0] == f"1{'•' * 58}2"
    assert [line.strip() for line in shown[1:29]] == ["•"] * 28
    assert shown[29] == f"{'3':>60}"
    assert shown[30].split("  ") == ["1: été 75%", "2: été 75%", "3: été 75%"]


def test_a_picture_fits_its_window() -> None:
    picture = np.zeros((1, 12, 20), np.uint8)
    picture[:, :, 10:] = 255
    for width, wanted in ((80, 60), (WIDEST, 60), (59, 40), (39, 20), (16, 16), (3, 3)):
        shown = lines(scanpath([(0.0, 0.0)], picture), width=width)
        image = [line for line in shown if set(line) <= {*SHADES, "1"}]
        assert {len(line) for line in image} == {wanted}
        assert len(image) == max(1, round(12 * wanted / 20 / 2))
        assert max(map(len, shown)) <= max(width, len("1: été 75%"))
    assert lines(scanpath([(0.0, 0.0)], picture), width=20)[0] == " " * 10 + "█" * 10
    assert len(lines(scanpath([(0.0, 0.0)], np.zeros((1, 500, 20), np.uint8)))) == TALLEST + 1


def test_no_number_hides_another() -> None:
    shown, signs = lines(scanpath([(0.0, 0.0)] * 12)), "123456789abc"
    found = [(sign, row, column) for row in range(30) for column, sign in enumerate(shown[row]) if sign in signs]
    assert sorted(sign for sign, *_ in found) == [*signs]
    assert all(abs(row - 15) <= 2 and abs(column - 30) <= 3 for _, row, column in found)
    assert "c: été 75%" in shown[-1]


def test_where_there_is_no_room_the_last_number_is_seen() -> None:
    assert lines(scanpath(CORNERS, np.zeros((1, 1, 1), np.uint8)), width=1)[0] == "3"


def test_ascii_is_enough() -> None:
    picture = np.full((3, 60, 60), 255, np.uint8)
    shown = lines(scanpath(CORNERS, picture), encoding="ascii")
    assert shown[0] == f"1{'+' * 58}2"
    assert shown[1] == PLAIN_SHADES[-1] * 59 + "+"
    assert shown[-1].startswith("1: ?t? 75%")


def test_two_pixels_a_character_in_their_own_colours() -> None:
    picture = np.zeros((3, 2, 60), np.uint8)
    picture[0, 0], picture[2, 1] = 255, 255  # red above blue
    shown = coloured(scanpath([(0.0, -1.0)], picture))
    assert shown.count("\x1b[38;2;255;0;0;48;2;0;0;255m▀") == 59
    red, green, blue = (round(255 * value) for value in colour(0, 1))
    assert f"\x1b[1;30;48;2;{red};{green};{blue}m1" in shown
    plain = coloured(scanpath([(0.0, -1.0)], picture), encoding="ascii")
    assert plain.count("\x1b[48;2;128;0;128m ") == 59


def test_the_way_is_painted_in_the_colour_of_the_glimpse_it_leads_to() -> None:
    shown = coloured(scanpath([(-1.0, -1.0), (1.0, -1.0)]))
    red, green, blue = (round(255 * value) for value in colour(1, 2))
    assert shown.count(f"\x1b[38;2;{red};{green};{blue};48;2;0;0;0m▀") == 58


@pytest.mark.parametrize("total", [1, 2, 8])
def test_from_yellow_to_red(total: int) -> None:
    found = [colour(step, total) for step in range(total)]
    assert found[0] == (1.0, 0.85, 0.0)
    assert total == 1 or found[-1] == (1.0, 0.0, 0.0)
