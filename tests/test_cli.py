"""The command line: what it prints, what it writes, and how it says no."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from saccade.cli import main; main()"]
QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, encoding="utf-8", cwd=cwd, env=QUIET, check=False
    )


def test_help_and_version() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert "Attention models you can train" in shown.stdout
    for command in ("demo", "bench"):
        assert command in shown.stdout
    assert run("--version").stdout.startswith("saccade 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fly",), "No such command 'fly'"),
        (("demo", "--steps", "0"), "--steps"),
        (("bench", "attention", "--device", "tpu"), "--device"),
    ],
)
def test_mistakes_end_in_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    refused = run(*arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_output_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine", encoding="utf-8")
    refused = run("demo", "--steps", "1", "--out", str(taken))
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert str(taken) in refused.stderr
    assert taken.read_text(encoding="utf-8") == "mine"


def test_the_demo_draws_in_the_terminal_and_to_a_file(tmp_path: Path) -> None:
    shown = run("demo", "--steps", "3", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "of 1,000 new rows are sorted" in shown.stdout
    picture = tmp_path / "runs" / "demo" / "attention.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in picture.parent.iterdir()] == ["attention.png"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_interrupting_the_demo_is_quiet_and_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([*COMMAND, "demo"], cwd=tmp_path, env=QUIET, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(6)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert list(tmp_path.rglob("*.png")) == []


def test_the_benchmark_speaks_json() -> None:
    shown = run("bench", "attention", "--quick", "--json")
    assert shown.returncode == 0, shown.stderr
    report = json.loads(shown.stdout)
    assert report["machine"]["device"] == "cpu"
    names = {row["name"] for row in report["rows"]}
    assert {"dot", "additive", "multi-head", "window 128"} <= names
    assert all(row["seconds"] > 0 and row["time_ratio"] > 0 for row in report["rows"])
