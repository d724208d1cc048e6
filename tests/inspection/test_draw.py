"""Drawn weights: every word there, wide scripts aligned, narrow windows continued below."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console

from saccade.inspection import draw


def shown(queries: list[str], keys: list[str], width: int) -> list[str]:
    console = Console(width=width, record=True, file=None, force_terminal=False)
    weights = torch.eye(len(queries), len(keys))
    with console.capture() as captured:
        console.print(draw.in_terminal(weights, queries=queries, keys=keys, console=console))
    return captured.get().splitlines()


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
    assert [word for line in lines[::2] for word in line.split()] == keys


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files_are_whole(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "deep" / f"weights.{ending}"
    draw.to_file(torch.eye(3), path, queries=list("abc"), keys=list("abc"), title="t")
    assert path.stat().st_size > 1000
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.png"
    path.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(OSError, match="No space"):
        draw.to_file(torch.eye(2), path, queries=["a", "b"], keys=["a", "b"])
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["weights.png"]
