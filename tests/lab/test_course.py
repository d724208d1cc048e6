"""The course: its scripts run, its figures have the same numbers, its exercises can be solved."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

COURSE = Path(__file__).parents[2] / "docs" / "course"
sys.path.insert(0, str(COURSE))
CHAPTERS = sorted(COURSE.glob("[0-9]*.md"))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("one_vector", {"num_steps": 2}, "width 128"),
        ("look_back", {"num_steps": 2}, "apart"),
        ("scores", {}, "location"),
        ("where", {}, "entmax15"),
        ("one_sentence", {"num_steps": 2}, "hops overlap by"),
        ("itself", {"num_steps": 2}, "best guess without order"),
        ("places", {}, "head 2, place 0 reads"),
        ("transformer", {"num_steps": 2}, "are sorted without a mistake"),
        ("look_inside", {"num_steps": 2}, "Spearman's correlation"),
        ("search", {}, "B = 2: the cat sleeps  p = 0.2187"),
    ],
)
def test_a_script_runs_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, options: dict[str, Any], said: str
) -> None:
    script = import_module(name)
    script.main(tmp_path / "drawn.png", **options)
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    assert script.PICTURE.exists(), f"python docs/course/{name}.py draws it"
    assert said in capsys.readouterr().out


def test_attention_by_hand_is_attention() -> None:
    hand = import_module("look_back").attend_by_hand
    query, key, value = (
        torch.eye(2),
        torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]]),
        torch.tensor([[1.0], [0], [0]]),
    )
    raised = torch.tensor([2 / 2**0.5, 0, 0]).exp()
    assert hand(query, key, value)[0, 0] == pytest.approx(float(raised[0] / raised.sum()))


def test_figure_and_script_search_the_same_table() -> None:
    text = (COURSE / "figures" / "beam.js").read_text("utf-8").split("const NEXT = ")[1].split("};")[0]
    rows = re.findall(r"^ +\"?([\w<>/]+)\"?: \{ (.*) \},$", text, re.MULTILINE)
    pairs = {
        last: {word: float(p) for word, p in re.findall(r"\"?([\w<>/]+)\"?: ([\d.]+)", following)}
        for last, following in rows
    }
    assert pairs == import_module("search").NEXT


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_all_its_parts(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "$$" in text
    assert "\n## Exercise\n" in text
    for script in re.findall(r"python docs/course/(\w+)\.py", text):
        assert (COURSE / f"{script}.py").exists()
        assert f"({script}.png)" in text
    assert f"]({path.name})" in (COURSE / "README.md").read_text("utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(
            compile(block.replace("    ...\n    return output, weights", "    return query, key"), path.name, "exec"),
            {},
        )
