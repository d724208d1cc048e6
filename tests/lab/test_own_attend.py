"""`saccade lab check`: each property of a reader's attend is judged by itself, and what is wrong has one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from saccade.cli import app
from saccade.errors import UserError
from saccade.lab import check

RIGHT = """
def attend(query, key, value, mask=None):
    score = query @ key.mT / query.shape[-1] ** 0.5
    if mask is not None:
        score = score.masked_fill(~mask, -1e30)
    weights = score.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights
"""


def wrong(folder: Path, text: str) -> dict[str, str]:
    path = folder / "mine.py"
    path.write_text(text, encoding="utf-8")
    return {one.name: one.line() for one in check.judge(check.load(path), path) if one.problem is not None}


def test_what_is_right_passes_and_masks_are_asked_of_who_takes_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT, encoding="utf-8")
    verdicts = list(check.judge(check.load(path), path))
    assert len(verdicts) == len(check.BASIC) + len(check.MASKED)
    assert all(one.problem is None for one in verdicts)
    path.write_text(RIGHT.replace(", mask=None", "").replace("mask is not None", "False"), encoding="utf-8")
    assert len(list(check.judge(check.load(path), path))) == len(check.BASIC)


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("return weights @ value, weights", "return weights, weights @ value", ["returns output"]),
        ("return weights @ value, weights", "return weights @ value", ["returns output"]),
        (" / query.shape[-1] ** 0.5", "", ["divided by sqrt(D)"]),
        (" / query.shape[-1] ** 0.5", " / 4", ["softmax of q·k", "divided by sqrt(D)"]),
        ("score.softmax(-1)", "score.softmax(-2)", ["sum to 1", "softmax of q·k"]),
        ("score.softmax(-1)", "score.exp() / score.exp().sum(-1, keepdim=True)", ["overflow", "zeros"]),
        ("weights @ value, weights", "weights.softmax(-1) @ value, weights", ["weighted sum"]),
        ("weights @ value, weights", "weights.detach() @ value, weights", ["gradients"]),
        ("query @ key.mT", "query @ key.transpose(0, 1)", ["batches"]),
        ("score.softmax(-1)", "(score + __import__('torch').arange(score.shape[-1])).softmax(-1)", ["order"]),
        ("-1e30", "-1.0", ["allowed", "forbidden"]),
        ("weights = weights.masked_fill(~mask, 0.0)", "pass", ["without any key"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, names: list[str]) -> None:
    assert old in RIGHT
    found = wrong(tmp_path, RIGHT.replace(old, new))
    assert any(name in line for name in names for line in found.values()), found
    assert all("\n" not in line and line.startswith("WRONG ") for line in found.values())


def test_a_missing_scale_is_all_that_is_said_to_be_wrong(tmp_path: Path) -> None:
    assert list(wrong(tmp_path, RIGHT.replace(" / query.shape[-1] ** 0.5", ""))) == ["q·k is divided by sqrt(D)"]


def test_code_that_fails_is_one_line_with_its_place(tmp_path: Path) -> None:
    (line,) = wrong(tmp_path, "\ndef attend(query, key, value):\n    return 1 / 0\n").values()
    assert line.endswith("it failed, line 3: ZeroDivisionError: division by zero")
    for text, said in (("x = = 3", "mine.py, line 1: SyntaxError"), ("\nfoo()", "mine.py, line 2: NameError")):
        with pytest.raises(UserError, match=said):
            wrong(tmp_path, text)
    with pytest.raises(UserError, match="it defines no function attend"):
        wrong(tmp_path, "x = 3")
    with pytest.raises(UserError, match="there is no file at"):
        check.load(tmp_path / "none.py")


def test_the_command_tells_both(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT, encoding="utf-8")
    found = CliRunner().invoke(app, ["lab", "check", str(path)])
    assert found.exit_code == 0
    assert f"{path}: all 11 properties hold" in found.stdout
    path.write_text(RIGHT.replace(" / query.shape[-1] ** 0.5", ""), encoding="utf-8")
    found = CliRunner().invoke(app, ["lab", "check", str(path), "--json"])
    assert isinstance(found.exception, UserError)
    assert "1 of 11 properties is wrong" in str(found.exception)
    assert '"problem": "at width 256' in found.stdout
