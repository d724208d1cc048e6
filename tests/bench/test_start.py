"""Starts are measured in processes of their own, and imports are added up by package."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from saccade.bench import start
from saccade.cli import app
from saccade.errors import UserError

SLOW = "import time; b = bytearray(60 << 20); time.sleep(0.2)"


def test_every_command_is_run_as_often_as_the_others(tmp_path: Path) -> None:
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    commands = {"quick": [sys.executable, "-S", "-c", count], "slow": [sys.executable, "-S", "-c", SLOW]}
    said: list[str] = []
    quick, slow = start.measure(commands, 2, said.append)
    assert (tmp_path / "count").read_text() == "xxx"  # the first does not count
    assert said == ["warming up", "round 1 of 2", "round 2 of 2"]
    assert (quick.title, slow.title) == ("quick", "slow")
    assert slow.seconds >= 0.2 > quick.cpu_seconds
    assert slow.cpu_seconds < slow.seconds
    assert slow.mebibytes > quick.mebibytes + 50


def test_a_command_that_fails_is_named() -> None:
    with pytest.raises(UserError, match="broken: it ended with 1: ValueError: no"):
        start.measure({"broken": [sys.executable, "-c", "raise ValueError('no')"]}, 1, lambda _: None)


def test_modules_are_compiled_as_an_installation_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import sys; assert not sys.dont_write_bytecode"
    assert start.measure({"quick": [sys.executable, "-S", "-c", code]}, 1, lambda _: None)


def test_imports_are_added_up_by_package(tmp_path: Path) -> None:
    package = tmp_path / "large"
    package.mkdir()
    (package / "__init__.py").write_text("import time\nfrom large import part\ntime.sleep(0.1)\n")
    (package / "part.py").write_text("import json, time\ntime.sleep(0.1)\n")
    first, *others = start.profile_imports(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import large"]
    )
    assert (first.package, first.modules) == ("large", 2)
    assert 0.2 <= first.seconds < 2
    assert {row.package for row in others} >= {"(Python's own)"}


def test_the_command_starts_what_it_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = start.list_commands(tmp_path, ["native", "torch"])
    assert commands["saccade predict, native"][1:] == [
        *("-m", "saccade", "predict", str(tmp_path), start.SENTENCE, "--engine", "native")
    ]
    quick = {title: [sys.executable, "-S", "-c", "import json"] for title in commands}
    monkeypatch.setattr(start, "list_commands", lambda run, engines: quick)
    told = ["bench", "start", str(tmp_path), "--rounds", "1", "--imports"]
    found = json.loads(CliRunner().invoke(app, [*told, "--json"]).stdout)
    assert [row["title"] for row in found["rows"]] == list(commands)
    assert "json" not in {row["package"] for row in found["imports"]}  # it is Python's own
    shown = CliRunner().invoke(app, told).stdout
    assert "above torch" in shown
    assert "imports of saccade predict, torch" in shown
    with pytest.raises(UserError, match="--engines: 'fast' given; allowed: auto, torch"):
        CliRunner().invoke(app, [*told, "--engines", "fast"], catch_exceptions=False)
