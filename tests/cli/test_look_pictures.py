"""`saccade look` at pictures: a page that has them inside, a path of glimpses in the terminal."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from saccade.cli import app

RUNNER = CliRunner()


def look(folder: Path, name: str, *arguments: str, columns: int = 80) -> str:
    command = ["look", str(folder / name), str(folder / f"{name}.png"), *arguments]
    result = RUNNER.invoke(app, command, env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_page_of_a_caption_has_the_picture_inside(seeing: Path, tmp_path: Path) -> None:
    look(seeing, "shapes", "--draw", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text("utf-8")
    (address,) = json.loads(page.split('id="pictures">')[1].split("</script>")[0])
    kind, _, content = address.partition(",")
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(content))) as found, Image.open(seeing / "shapes.png") as given:
        assert np.array_equal(np.asarray(found), np.asarray(given))
    assert "picture" not in json.loads(look(seeing, "shapes", "--json"))["answer"]


def test_a_path_of_glimpses_is_drawn_under_its_answer(seeing: Path) -> None:
    answer, *picture, beliefs = look(seeing, "digits").splitlines()
    assert answer.split()[0].endswith("digits.png")
    assert {len(line) for line in picture} == {40}
    assert len(picture) == 20
    assert sorted(sign for line in picture for sign in line if sign in "12345") == [*"12345"]
    assert [part[:2] for part in beliefs.split("  ")] == ["1:", "2:", "3:", "4:", "5:"]
    narrow = [line for line in look(seeing, "digits", columns=30).splitlines() if "█" in line]
    assert [len(line) for line in narrow] == [30] * 15


def test_glimpses_have_no_map_in_json(seeing: Path) -> None:
    found = json.loads(look(seeing, "digits", "--json"))
    assert len(found["answer"]["path"]) == 5
    assert found["attention"] == {}
