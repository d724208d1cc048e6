"""A grid of all heads: every panel there, with one scale, words at the edges."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from saccade.errors import UserError
from saccade.inspection.draw import grid

WORDS = ["ena", "dva", "tri", "štiri", "pet"]


def test_every_head_has_a_panel(tmp_path: Path) -> None:
    weights = torch.rand(6, 8, 5, 7).softmax(-1)
    grid.to_file(weights, tmp_path / "a.svg", queries=WORDS, keys=[*WORDS, "$", "."], title="6 x 8")
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert svg.count("<image") == 48 + 1  # and the scale
    for name in [f"layer {layer}" for layer in range(6)] + [f"head {head}" for head in range(8)]:
        assert svg.count(f">{name}</text>") == 1
    assert svg.count(">štiri</text>") == 6 + 8


def test_the_marked_head_is_framed(tmp_path: Path) -> None:
    for marked, frames in (((0, 1), 4), (None, 0)):
        weights, two = torch.rand(2, 3, 2, 2), WORDS[:2]
        grid.to_file(weights, tmp_path / "a.svg", queries=two, keys=two, marked=marked)
        assert (tmp_path / "a.svg").read_text("utf-8").count(grid.MARK) == frames


def test_many_words_are_left_out(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(grid.MOST_NAMED + 1)]
    grid.to_file(torch.rand(1, 2, 2, len(words)), tmp_path / "a.svg", queries=["a", "b"], keys=words)
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert ">a</text>" in svg
    assert ">w3</text>" not in svg


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a picture ends in \.png, \.svg or \.pdf"):
        grid.to_file(torch.rand(1, 1, 2, 2), tmp_path / "a.jpg", queries=WORDS[:2], keys=WORDS[:2])
