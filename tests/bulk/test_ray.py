"""Many files on Ray: a process that is killed, and then the command itself, cost no line."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from runs import make_run
from saccade.cli import app
from saccade.runs.load import load_run

pytest.importorskip("ray", reason="Ray is not installed (pip install 'saccade[ray]'); test_ray_calls.py has another")

NUM_FILES, NUM_LINES, PATIENCE = 10, 400, 120.0


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def answering(command: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that answer a shard just now."""
    found = []
    for one in psutil.Process(command.pid).children(recursive=True):
        try:
            found += [one] if " ".join(one.cmdline()).startswith("ray::_Actor.answer") else []
        except psutil.NoSuchProcess:
            continue
    return found


def test_killed_processes_cost_no_line(tmp_path: Path) -> None:
    run, texts, out = make_run(tmp_path / "run", "decoding.max_length=9"), tmp_path / "texts", tmp_path / "out"
    texts.mkdir()
    for number in range(NUM_FILES):
        lines = (f"{'abcdefgh'[(number + line) % 8]} {'abc'[line % 3]}\n" for line in range(NUM_LINES))
        (texts / f"{number}.txt").write_text("".join(lines), encoding="utf-8")
    order = ["predict", str(run), "--input", str(texts), "--output", str(out), "--json"]
    on_ray = [sys.executable, "-m", "saccade", *order, "--on", "ray", "--workers", "2"]

    def num_written() -> int:
        return len([*out.glob("[0-9].txt")])

    command = subprocess.Popen(on_ray, stderr=subprocess.DEVNULL)
    try:
        until(lambda: bool(answering(command)))
        lost = answering(command)[0]
        lost.kill()
        until(lambda: num_written() >= 3)
        assert lost.pid not in [one.pid for one in answering(command)]
        others = psutil.Process(command.pid).children(recursive=True)
    finally:
        command.kill()
        command.wait()
    assert num_written() < NUM_FILES
    until(lambda: not [one for one in others if one.is_running() and one.status() != psutil.STATUS_ZOMBIE])
    done = CliRunner().invoke(app, [*order, "--on", "local"])
    assert f"of {NUM_FILES} files are written already" in done.output
    predictor = load_run(run)
    for path in texts.iterdir():
        sources = path.read_text("utf-8").splitlines()
        found = (out / path.name).read_text("utf-8").splitlines()
        assert len(found) == NUM_LINES
        assert [line.split('"text": "', 1)[1].split('"', 1)[0] for line in found] == [
            one.line() for one in predictor.predict(sources)
        ]
    assert [path.name for path in out.glob(".*")] in ([], [".lock"])
