"""Drawn weights: every word there, wide scripts aligned, narrow windows continued below."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console

from saccade.inspection.draw import heatmap
from saccade.inspection.draw.figure import open_picture


def shown(queries: list[str], keys: list[str], width: int, *, encoding: str = "utf-8", **given: Any) -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(width=width, file=file, **given)
    weights = torch.eye(len(queries), len(keys))
    console.print(heatmap.in_terminal(weights, queries=queries, keys=keys, console=console))
    file.seek(0)
    return file.read().splitlines()


def test_a_diagonal_is_drawn_as_one() -> None:
    lines = shown(["un", "deux"], ["one", "two"], 80)
    assert lines[0].split() == ["one", "two"]
    assert lines[1].index("█") < lines[2].index("█")


def test_wide_scripts_keep_their_columns() -> None:
    lines = shown(["東京", "a"], ["東", "b", "京都市"], 80)
    assert len({cell_len(line) for line in lines}) == 1


def test_what_is_too_wide_goes_on_below() -> None:
    keys = [f"w{i}" for i in range(30)]
    lines = shown(["x"], keys, 40)
    assert all(cell_len(line) <= 40 for line in lines)
    assert [word for line in lines[::3] for word in line.split()] == keys
    assert len(shown(["x"], keys, 200)) == 2


WORDS = [
    "e\u0301te\u0301",
    "👩\u200d👩\u200d👧",
    "नमस्ते",
    "東京都庁前で会いましょう",
    "incomprehensibilities",
    "🇫🇷",
    ".",
]


@pytest.mark.parametrize("width", [1, 20, 40, 200])
def test_any_script_in_any_window(width: int) -> None:
    lines = shown(WORDS, WORDS, width)
    assert all(cell_len(line) <= max(width, 6) for line in lines)
    if width == 200:
        assert len({cell_len(line) for line in lines}) == 1
        assert lines[0].endswith("東京都庁前 … incomprehen… 🇫🇷  .  ")


def test_words_from_the_right_keep_their_columns() -> None:
    header = shown(["a", "b"], ["שלום", "عالم"], 40)[0]
    assert header == "  שלום\u200e عالم\u200e"  # without the mark a terminal would turn the whole line around


def test_nothing_in_a_word_reaches_the_terminal_as_a_command() -> None:
    lines = shown(["\x1b[31mred", "a\tb\u202e"], ["x\ny", "\u2066z"], 60)
    assert len(lines) == 3
    assert not set("".join(lines)) & {"\x1b", "\t", "\u202e", "\u2066"}


def test_an_ascii_terminal_gets_ascii() -> None:
    lines = shown(["été", "b"], ["東京", "incomprehensibilities"], 60, encoding="ascii")
    assert lines == ["    ??  incomprehen~", "?t? ###             ", "b       ############"]


def test_colours_say_percents() -> None:
    lines = shown(["a", "b"], ["one", "two"], 60, force_terminal=True, color_system="truecolor")
    assert "100" in lines[1]
    assert "rgb" not in lines[1]
    assert "48;2;216;236;255" in lines[1]
    assert "░" not in "".join(lines)


@pytest.mark.parametrize(
    ("share", "colour"), [(0.0, (32, 38, 45)), (0.25, (38, 67, 95)), (0.375, (42, 88, 130)), (1.0, (216, 236, 255))]
)
def test_colours_go_from_stop_to_stop(share: float, colour: tuple[int, int, int]) -> None:
    assert heatmap.DARK.style(share).endswith(f"on rgb({','.join(map(str, colour))})")


def test_a_light_background_gets_light_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORFGBG", "0;15")
    assert "48;2;10;47;92" in shown(["a"], ["one"], 60, force_terminal=True, color_system="truecolor")[1]


def test_what_is_spread_thin_can_have_the_full_shade() -> None:
    console = Console(width=60)
    with console.capture() as captured:
        weights = torch.tensor([[0.1, 0.05]])
        console.print(heatmap.in_terminal(weights, queries=["a"], keys=["one", "two"], console=console, most=0.1))
    assert captured.get().splitlines()[1] == "a ███ ▒▒▒"


def test_long_queries_take_the_room_that_the_keys_leave() -> None:
    console = Console(width=40)
    for longest, width in {12: 12, 30: 30, 90: 40 - 2 * 6 - 1}.items():
        with console.capture() as captured:
            weights, keys = torch.tensor([[1.0, 0.0]]), ["hop 1", "hop 2"]
            console.print(heatmap.in_terminal(weights, queries=["x" * 50], keys=keys, console=console, longest=longest))
        assert captured.get().splitlines()[1].index("█") == min(width, 27) + 1


def test_pictures_spell_words_as_they_are(tmp_path: Path) -> None:
    heatmap.to_file(torch.eye(2), tmp_path / "a.svg", queries=["$x$", "b"], keys=["東京", "<i>"], title="$5 and $6")
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert all(word in svg for word in ("$x$", "東京", "&lt;i&gt;", "$5 and $6"))


def test_whole_sentences_leave_the_cells_their_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a picture of hops: the names of rows don't overlap, however long those of columns are."""
    figures = []

    @contextmanager
    def kept(*given: Any) -> Iterator[Any]:
        with open_picture(*given) as figure:
            yield figure
        figures.append(figure)

    monkeypatch.setattr(heatmap, "open_picture", kept)
    hops, story = ["hop 1", "hop 2", "hop 3"], ["Mary went back to the garden.", "John took the football there."]
    for queries, keys in ((hops, story), (story, hops)):
        heatmap.to_file(torch.rand(len(queries), len(keys)), tmp_path / "a.png", queries=queries, keys=keys)
        figure = figures.pop()
        cells = figure.axes[0].get_window_extent()
        names = [name.get_window_extent() for name in figure.axes[0].get_yticklabels()]
        assert all(not one.overlaps(other) for one, other in itertools.pairwise(names))
        assert cells.height > 0.2 * len(queries) * figure.dpi
        assert cells.width > 0.2 * len(keys) * figure.dpi


def test_letters_that_no_font_has_are_told_in_one_line(tmp_path: Path) -> None:
    unwritten = "\N{ANATOLIAN HIEROGLYPH A001}"
    with pytest.warns(UserWarning, match=f"a.png: no font here has {unwritten}; install one") as told:
        heatmap.to_file(torch.eye(2), tmp_path / "a.png", queries=[unwritten, "b"], keys=[unwritten, "b"])
    assert len(told) == 1


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files_are_whole(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "deep" / f"weights.{ending}"
    heatmap.to_file(torch.eye(3), path, queries=list("abc"), keys=list("abc"), title="t")
    assert path.stat().st_size > 1000
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.png"
    path.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(OSError, match="No space"):
        heatmap.to_file(torch.eye(2), path, queries=["a", "b"], keys=["a", "b"])
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["weights.png"]
