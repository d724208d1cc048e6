"""Where words were heard, and how many were heard wrong."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.inspection.draw import sound
from saccade.inspection.draw.sound import count_later_looks, measure_monotonic_share
from saccade.tasks.translate.scoring.word_errors import word_error_rate, word_errors


def test_looks_that_move_on_are_counted() -> None:
    weight_TS = torch.tensor([[0.9, 0.1, 0, 0], [0.2, 0.5, 0.3, 0], [0.1, 0.8, 0.1, 0], [0, 0, 0, 1.0], [1.0, 0, 0, 0]])
    assert count_later_looks(weight_TS) == (2, 4)  # it stays once, and goes back once
    assert count_later_looks(weight_TS[:1]) == (0, 0)
    assert measure_monotonic_share([weight_TS, weight_TS[:2]]) == 3 / 5
    assert math.isnan(measure_monotonic_share([weight_TS[:1]]))


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_an_alignment_is_drawn_over_its_sound(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"look{ending}"
    frames = np.random.default_rng(1).normal(size=(31, 11)).astype(np.float32)
    sound.to_file(torch.rand(3, 8), path, words=["one", "two", "</s>"], frames_SF=frames, hop=0.01, title="1 2")
    start = path.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if ending == ".png" else b"<?xml" in start


@pytest.mark.parametrize(
    ("output", "reference", "errors"),
    [
        ("one two three", "one two three", 0),
        ("one too three", "one two three", 1),
        ("one three", "one two three", 1),
        ("one two two three", "one two three", 1),
        ("", "one two", 2),
        ("one two", "", 2),
        ("two three one", "one two three", 2),
        ("a b c d e f", "f e d c b a", 6),
        ("s i t t i n g", "k i t t e n", 3),
    ],
)
def test_word_errors_by_hand(output: str, reference: str, errors: int) -> None:
    assert word_errors(output, reference) == errors


def test_word_errors_are_those_of_the_plain_recursion() -> None:
    def plain(x: list[str], y: list[str]) -> int:
        if not x or not y:
            return len(x) + len(y)
        last = plain(x[:-1], y[:-1]) + (x[-1] != y[-1])
        return min(last, plain(x[:-1], y) + 1, plain(x, y[:-1]) + 1)

    random = np.random.default_rng(1)
    for _ in range(60):
        x, y = (list(random.choice(["a", "b", "c"], random.integers(0, 6))) for _ in range(2))
        assert word_errors(" ".join(x), " ".join(y)) == plain(x, y)


def test_the_rate_is_over_all_words() -> None:
    assert word_error_rate(["one two", "three"], ["one two", "four five"]) == 50
    assert word_error_rate(["", "a b"], ["", ""]) == 200
