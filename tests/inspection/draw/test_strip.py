"""Clips as strips of frames: laid out as one picture, and when and where each word looked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from saccade.inspection.draw import strip

FRAMES = np.random.default_rng(1).integers(0, 256, (3, 3, 4, 6), np.uint8)
WEIGHTS = np.zeros((2, 3, 2, 3), np.float32)
WEIGHTS[0, 1, 0, 2], WEIGHTS[0, 2, 1, 0], WEIGHTS[1, 0, 1, 1] = 0.75, 0.25, 1.0


def test_frames_lie_side_by_side() -> None:
    laid = strip.lay_out(WEIGHTS)
    assert laid.shape == (2, 2, 9)
    assert laid[0].tolist() == [[0, 0, 0, 0, 0, 0.75, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0.25, 0, 0]]
    many = strip.lay_out(np.arange(1, 12).reshape(1, 11, 1, 1))
    assert many.tolist() == [[[1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 0, 0, 0, 0, 0]]]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
@pytest.mark.parametrize("frames", [FRAMES, None])
def test_files(tmp_path: Path, ending: str, frames: np.ndarray | None) -> None:
    path = tmp_path / f"clip.{ending}"
    strip.to_file(path, frames, ["it", "$stops"], WEIGHTS, "clip.gif", [(1, 0, 1)])
    assert path.stat().st_size > 1000


def test_the_true_span_is_drawn(tmp_path: Path) -> None:
    def count_orange(spans: list[tuple[int, int, int]]) -> int:
        strip.to_file(tmp_path / "clip.png", None, ["it", "stops"], WEIGHTS, spans=spans)
        with Image.open(tmp_path / "clip.png") as drawn:
            return int((np.asarray(drawn.convert("RGB")) == [0xD9, 0x48, 0x0F]).all(-1).sum())

    assert count_orange([]) == 0
    assert count_orange([(1, 0, 1)]) > 20


def test_nothing_said_is_nothing_drawn(tmp_path: Path) -> None:
    strip.to_file(tmp_path / "nothing.png", None, [], WEIGHTS[:0])
    assert (tmp_path / "nothing.png").exists()


def test_a_part_of_a_page_is_safe_text() -> None:
    part = strip.render_article(FRAMES, ["<b>", "dog"], WEIGHTS, ["a <dog>"])
    assert "<b>" not in part
    assert "data:image/png" in part


def test_the_terminal_shows_when_each_word_looked() -> None:
    console = Console(width=60, color_system=None)
    with console.capture() as captured:
        console.print(strip.in_terminal(["it", "stops"], WEIGHTS, console))
    header, it, stops = captured.get().splitlines()
    assert header.split() == ["1", "2", "3"]
    assert it.split() == ["it", "▓▓▓", "░░░"]
    assert stops.split() == ["stops", "███"]
