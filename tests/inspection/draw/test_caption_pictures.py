"""Where words looked, as a picture: light where the weight is."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from saccade.inspection.draw.caption import DARKEST, VEIL, in_terminal, overlay, render_article, to_file

PICTURE = np.full((3, 4, 6), 255, np.uint8)
WEIGHTS = np.array([[[0.5, 0.0], [0.25, 0.25]], [[1.0, 0.0], [0.0, 0.0]]])


def test_the_picture_is_light_where_the_weight_is() -> None:
    shown = overlay(PICTURE, WEIGHTS[0])
    assert shown.shape == (4, 6, 3)
    assert np.allclose(shown[:2, :3], 1.0)
    assert np.allclose(shown[:2, 3:], DARKEST)
    assert np.allclose(shown[2:], DARKEST + (1 - DARKEST) / 2)


def test_looking_at_something_dark_is_seen() -> None:
    shown = overlay(np.zeros((1, 4, 6), np.uint8), WEIGHTS[1])
    assert np.allclose(shown[:2, :3], VEIL)
    assert np.allclose(shown[2:], VEIL * DARKEST)


def test_without_a_picture_the_weights_are_the_light() -> None:
    assert np.allclose(overlay(None, WEIGHTS[1])[..., 0], [[1.0, DARKEST], [DARKEST, DARKEST]])


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"caption.{ending}"
    to_file(path, PICTURE if ending == "png" else None, ["a", "$dog"], WEIGHTS, "dog.png")
    assert path.stat().st_size > 1000


def test_nothing_said_is_nothing_drawn(tmp_path: Path) -> None:
    to_file(tmp_path / "nothing.png", None, [], WEIGHTS[:0])
    assert (tmp_path / "nothing.png").exists()


def test_a_part_of_a_page_is_safe_text() -> None:
    part = render_article(PICTURE, ["<b>", "dog"], WEIGHTS, ["a <dog>"])
    assert "<b>" not in part
    assert "a &lt;dog&gt;" in part
    assert 'src="data:image/png;base64,' in part


def test_in_the_terminal_words_stand_over_their_places() -> None:
    console = Console(width=40, record=True, file=io.StringIO())
    console.print(in_terminal(["a", "dog"], WEIGHTS, console))
    lines = console.export_text().splitlines()
    assert lines[0].split() == ["a", "dog"]
    assert lines[1].split() == ["██", "██"]
    assert lines[2].split() == ["▒▒▒▒"]


def test_an_ascii_terminal_gets_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(width=40, file=file)
    console.print(in_terminal(["été", "dog"], WEIGHTS, console))
    file.seek(0)
    assert file.read().split() == ["?t?", "dog", "##", "##", "::::"]


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a picture ends in"):
        to_file(tmp_path / "x.txt", None, ["a", "b"], WEIGHTS)
