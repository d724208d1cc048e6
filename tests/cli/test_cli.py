"""The command line: what it prints, what it writes, and how it says no."""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from saccade import manifest
from saccade.bench.attention import scores
from saccade.bench.measure import medians_side_by_side
from saccade.cli import COMMANDS, app, load_command, main

COMMAND = [sys.executable, "-m", "saccade"]
SMALL = ("demo", "--steps", "3", "--sentences", "2000")
QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, encoding="utf-8", cwd=cwd, env=QUIET, check=False
    )


def complete(words: str, number: int) -> list[str]:
    """What the shell is offered for a word of a line."""
    asked = {"_SACCADE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    done = subprocess.run(COMMAND, capture_output=True, text=True, env=QUIET | asked, check=True)
    return done.stdout.split()


def test_shells_complete_commands_and_options() -> None:
    assert complete("saccade ev", 1) == ["evaluate"]
    assert complete("saccade train --verify", 2) == ["--verify-resume"]
    assert complete("saccade bench gli", 2) == ["glimpse"]


def test_completion_is_installed_for_the_shell_that_runs_it(tmp_path: Path) -> None:
    line = f"{shlex.join([sys.executable, '-m', 'saccade'])} --install-completion; true"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=QUIET | {"HOME": str(tmp_path)}, check=True
    )
    assert "Completion will take effect once you restart the terminal" in done.stdout
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert script.name == "saccade.sh"
    assert "_SACCADE_COMPLETE=complete_bash" in script.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    assert load_command(name).help == COMMANDS[name]


def test_help_and_version() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert "Attention models you can train" in shown.stdout
    for command in ("demo", "bench"):
        assert command in shown.stdout
    assert run("--version").stdout.startswith("saccade 0.")


@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fly",), "no command fly"),
        (("demo", "--steps", "0"), "--steps"),
        (("bench", "attention", "--device", "tpu"), "--device"),
    ],
)
def test_mistakes_end_in_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    refused = run(*arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def list_commands(group: Any, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words of each command, and of each group."""
    names = group.list_commands(None) if hasattr(group, "list_commands") else []
    parts = [(name, load_command(name) if not words else group.get_command(None, name)) for name in names]
    return [words, *(found for name, part in parts for found in list_commands(part, (*words, name)))]


def refuse(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says of these words, in one line, with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["saccade", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert shown.out == ""
    assert shown.err.count("\n") == 1, shown.err
    return shown.err.removesuffix("\n")


@pytest.mark.parametrize("words", list_commands(typer.main.get_command(app)), ids=" ".join)
def test_every_command_says_in_one_line_that_it_has_no_such_option(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refuse((*words, "--0000"), monkeypatch, capsys)
    where = "".join(f"{word} " for word in words).strip()
    assert said.startswith(f"saccade: {where}: no option --0000; allowed: --" if where else "saccade: no option --0000")
    assert said.endswith("--help")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("predit",), "no command predit (did you mean predict?)"),
        (("0000",), f"no command 0000; allowed: {', '.join(COMMANDS)}"),
        (("config", "shema"), "config: no command shema (did you mean schema?)"),
        (("predict", "run", "--bean", "4"), "predict: no option --bean (did you mean --beam?)"),
        (("demo", "--hepl"), "demo: no option --hepl (did you mean --help?)"),
        (("predict",), "predict: missing argument 'model' (Usage: saccade predict [OPTIONS] {model} [texts]...)"),
        (("predict", "run", "--beam"), "Option '--beam' requires an argument"),
        (("predict", "run", "--beam", "x"), "predict: invalid value for '--beam': Input should be a valid integer"),
        (
            ("predict", "run", "--engine", "x"),
            "predict: invalid value for '--engine': 'x' is not one of 'auto', 'torch'",
        ),
        (("config", "schema", "a", "b", "c"), "config schema: got unexpected extra argument"),
    ],
)
def test_misuse_is_told_in_one_line(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refuse(arguments, monkeypatch, capsys).startswith(f"saccade: {said}")


@pytest.mark.usefixtures("quick_start")
def test_an_output_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine", encoding="utf-8")
    refused = run(*SMALL, "--out", str(taken))
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert str(taken) in refused.stderr
    assert taken.read_text(encoding="utf-8") == "mine"


@pytest.mark.usefixtures("quick_start")
def test_the_demo_translates_draws_and_is_quick_the_second_time(tmp_path: Path) -> None:
    first, second = run(*SMALL, cwd=tmp_path), run(*SMALL, cwd=tmp_path)
    for shown in (first, second):
        assert shown.returncode == 0, shown.stderr
        assert "of 1,000 held-out sentences are translated exactly" in shown.stdout
        assert "predict runs/demo" in shown.stdout
    assert "is finished: 3 steps" not in first.stdout
    assert "is finished: 3 steps" in second.stdout
    folder = tmp_path / "runs" / "demo"
    assert "<svg" in (folder / "report.html").read_text("utf-8")
    names = {f"{part}.{side}" for part in ("train", "valid", "test") for side in ("en", "fr")}
    assert {path.name for path in (folder / "data").iterdir()} == names
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("[!.]*") if path.is_file()}
    unchecked = {name for name in files if not manifest.is_recorded(folder, name)}
    assert {name for name in unchecked if not name.endswith(".safetensors")} == {manifest.NAME}


@pytest.mark.usefixtures("quick_start")
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_interrupting_the_demo_is_quiet_and_it_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "runs" / "demo" / "log.jsonl"
    command = [*COMMAND, "demo", "--steps", "5000", "--sentences", "2000"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=QUIET, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        while not log.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert list(tmp_path.rglob("*.png")) == []
    steps = int(next((log.parent / "checkpoints").glob("*.safetensors")).stem.removeprefix("step-"))
    again = run("demo", "--steps", str(steps), "--sentences", "2000", cwd=tmp_path)
    assert f"step {steps}: BLEU" in again.stdout  # no step was left, only its validation


def test_the_benchmark_speaks_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "medians_side_by_side", functools.partial(medians_side_by_side, most=3))
    shown = CliRunner().invoke(app, ["bench", "attention", "--quick", "--json"])
    assert shown.exit_code == 0, shown.stderr
    report = json.loads(shown.stdout)
    assert report["machine"]["device"] == "cpu"
    names = {row["name"] for row in report["rows"]}
    assert {"dot", "additive", "multi-head", "window 128"} <= names
    assert all(row["seconds"] > 0 and row["time_ratio"] > 0 for row in report["rows"])


def test_too_large_a_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("a b\tc d\n" * 4, "utf-8")
    (tmp_path / "big.yaml").write_text(
        "data: {train: {source: rows.tsv}, valid: {source: rows.tsv}}\n"
        "tokenizer: {kind: words}\nmodel: {kind: rnn, width: 1000000000}\n",
        "utf-8",
    )
    done = run("train", "big.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("saccade: not enough memory: ")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs" / "big").exists()
