"""A terminal that has nothing but ASCII: characters are replaced or escaped, and no command ends in a traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from runs import make_run
from saccade.tasks.console import busy

COMMANDS = """
import json, sys
from saccade.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        assert not end.code, arguments
    print("=", flush=True)
"""


def said(*commands: list[str]) -> list[str]:
    """What commands say there."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1", "COLUMNS": "40"}
    called = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    found = subprocess.run(called, capture_output=True, env=environment, check=False)
    assert found.returncode == 0, found.stderr.decode()
    return found.stdout.decode("utf-8").split("=\n")[:-1]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("ascii") / "été", words=["été", "東京", "[b]"])


@pytest.mark.usefixtures("quick_start")
def test_look(run: Path, seeing: Path) -> None:
    given = ["look", str(run), "été 東京", "--target", "[b] été"]
    pictures = [["look", str(seeing / name), str(seeing / f"{name}.png")] for name in ("shapes", "digits")]
    shown = said(given, [*given, "--json"], [*given, "--heads"], [*given, "--trust"], *pictures)
    assert len(shown) == 6
    assert all(text.isascii() for text in shown)
    plain, as_json, _, trusted, told, glimpsed = shown
    assert plain.startswith("[b] ?t?\n")
    assert json.loads(as_json)["sides"]["source"]["text"] == "été 東京"
    assert "?t?" in trusted
    assert "+" + "-" * 28 in trusted
    assert "#" in told
    assert "+" in glimpsed


@pytest.mark.usefixtures("quick_start")
def test_predict_writes_its_answers_in_utf8_and_its_maps_in_ascii(run: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("été\n東京\n", encoding="utf-8")
    given = ["predict", str(run), "--input", str(tmp_path / "texts"), "--min-length", "1"]
    plain, mapped, as_json = said(given, [*given, "--attention"], [*given, "--json"])
    answers = plain.splitlines()
    assert [json.loads(line)["text"] for line in as_json.splitlines()] == answers
    rest = [line for line in mapped.splitlines() if line not in answers]
    assert any("?t?" in line for line in rest)
    assert "".join(rest).isascii()


def test_the_wheel_that_turns() -> None:
    for encoding, frames in (("utf-8", "⠋"), ("ascii", "-")):
        console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        assert busy(console, "at work").renderable.frames[0] == frames


@pytest.mark.usefixtures("quick_start")
def test_train(run: Path) -> None:
    options = ["training.max_steps=2", "training.validate_every=2", "training.precision=float32", "device=cpu"]
    folder = run.with_name("née")
    (shown,) = said(["train", str(run / "draft.yaml"), *options, "--run", str(folder)])
    assert (folder / "model.safetensors").exists()
    assert "n\\xe9e" in shown
    assert shown.isascii()
