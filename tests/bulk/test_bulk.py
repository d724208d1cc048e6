"""Many files: each answered whole, in order and only once, wherever they are and whatever ends on the way."""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from runs import WORDS, make_run
from saccade.bulk import work
from saccade.bulk.shards import find_inputs, write_whole
from saccade.bulk.work import Counts, PredictWork
from saccade.cli import app
from saccade.errors import UserError
from saccade.export.choice import EngineChoice
from saccade.files import lock_folder
from saccade.inspection.align import chosen_head
from saccade.inspection.insight import Head
from saccade.runs.load import load_run

SIZES = (7, 1, 23, 5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("bulk") / "run", "decoding.max_length=9")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Files of lines, some blank: two packed, one in a folder of its own."""
    random = np.random.default_rng(3)
    folder = tmp_path / "texts"
    (folder / "more").mkdir(parents=True)
    for number, size in enumerate(SIZES):
        lines = [" ".join(random.choice(WORDS, random.integers(0, 6))) for _ in range(size)]
        content = "".join(f"{line}\n" for line in lines).encode()
        name = f"{number}.txt" if number % 2 else f"more/{number}.txt" if number == 2 else f"{number}.txt.gz"
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def predict(run: Path, texts: Path | str, output: Path | str, *more: object) -> Result:
    return call("predict", run, "--input", texts, "--output", output, "--on", "local", *more)


def read(folder: Path) -> dict[str, str]:
    """The files of a folder by their names, unpacked."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("job.json", ".lock"):
            content = path.read_bytes()
            name = str(path.relative_to(folder))
            found[name] = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return found


def answers(run: Path, texts: Path) -> dict[str, str]:
    """What one process writes for each file."""
    predictor = load_run(run)
    return {
        name: "".join(f"{one.line()}\n" for one in predictor.predict(text.splitlines()))
        for name, text in read(texts).items()
    }


def refused(result: Result) -> str:
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


def test_each_file_is_answered_in_order_and_the_next_call_has_nothing_to_do(
    run: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert predict(run, texts, tmp_path / "out").exit_code == 0
    found = read(tmp_path / "out")
    assert found == answers(run, texts)
    assert [len(text.splitlines()) for text in found.values()] == [7, 1, 5, 23]
    monkeypatch.setattr(work, "load_run", lambda *_, **__: load_run(run))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*t*")}
    again = predict(run, texts, tmp_path / "out")
    assert "4 of 4 files are written already" in again.output
    assert {path: path.stat().st_mtime_ns for path in before if path.name != "job.json"} == {
        path: age for path, age in before.items() if path.name != "job.json"
    }


def test_a_glob_and_json(run: Path, texts: Path, tmp_path: Path) -> None:
    result = predict(run, f"{texts}/*.gz", tmp_path / "out", "--json", "--beam", "2")
    assert result.exit_code == 0
    (lines,) = read(tmp_path / "out").values()
    assert len([json.loads(line) for line in lines.splitlines()]) == 7
    assert "score" in json.loads(lines.splitlines()[0])


class Failing:
    """Fails in the middle of a shard, as a full disk or a signal would make it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: BaseException, at: int) -> None:
        self.left, self.error, whole = at, error, Counts.watch

        def watch(counts: Counts, lines: Any) -> Iterator[str]:
            for line in whole(counts, lines):
                self.left -= 1
                if not self.left:
                    raise self.error
                yield line

        monkeypatch.setattr(Counts, "watch", watch)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_nothing_is_half_written_and_the_same_command_goes_on(
    run: Path, texts: Path, tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        Failing(patch, error, at=10)
        assert predict(run, texts, tmp_path / "out").exit_code != 0
    assert [len(text.splitlines()) for text in read(tmp_path / "out").values()] == [7, 1]
    assert predict(run, texts, tmp_path / "out").exit_code == 0
    assert read(tmp_path / "out") == answers(run, texts)


def test_output_of_another_job_is_left_alone(run: Path, texts: Path, tmp_path: Path) -> None:
    assert predict(run, texts, tmp_path / "out").exit_code == 0
    before = read(tmp_path / "out")
    said = refused(predict(run, texts, tmp_path / "out", "--beam", "3"))
    why = "written by another run, or with other options"
    assert said.endswith(f"out holds output of another job, {why}; give another folder, or delete it")
    (texts / "1.txt").write_text("a b c\na\n", encoding="utf-8")
    assert "1.txt has changed since its output was written" in refused(predict(run, texts, tmp_path / "out"))
    assert read(tmp_path / "out") == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("x", encoding="utf-8")
    assert "holds other files" in refused(predict(run, texts, tmp_path / "other"))
    (texts / "job.json").write_text("a\n", encoding="utf-8")
    assert "a file is called job.json" in refused(predict(run, texts, tmp_path / "new"))


def test_a_folder_is_written_by_one_job_and_drafts_of_killed_ones_go(run: Path, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "more").mkdir(parents=True)
    (draft := tmp_path / "out" / "more" / ".2-abcd_123.txt").write_text("half", encoding="utf-8")
    with lock_folder(tmp_path / "out"):
        assert "another process is writing in it" in refused(predict(run, texts, tmp_path / "out"))
    assert predict(run, texts, tmp_path / "out").exit_code == 0
    assert not draft.exists()
    assert read(tmp_path / "out") == answers(run, texts)


def test_a_file_that_came_later_is_answered(run: Path, texts: Path, tmp_path: Path) -> None:
    assert predict(run, texts, tmp_path / "out").exit_code == 0
    (texts / "9.txt").write_text("a b\n", encoding="utf-8")
    assert "4 of 5 files are written already" in predict(run, texts, tmp_path / "out").output
    assert read(tmp_path / "out") == answers(run, texts)


def test_files_elsewhere_are_read_and_written_there(run: Path, texts: Path, tmp_path: Path) -> None:
    memory: Any = fsspec.filesystem("memory")
    memory.put(str(texts), "/far", recursive=True)
    try:
        assert predict(run, "memory://far/**/*.txt*", "memory://out").exit_code == 0
        memory.get("/out", str(tmp_path / "back"), recursive=True)
        assert "4 of 4 files" in predict(run, "memory://far/**/*.txt*", "memory://out").output
    finally:
        memory.rm("/", recursive=True)
    assert read(tmp_path / "back") == answers(run, texts)


def test_a_store_that_shows_half_files_gets_them_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.bulk.shards.WHOLE", set())
    seen: list[list[str]] = []
    memory: Any = fsspec.filesystem("memory")

    def move(system: Any, old: str, new: str) -> None:
        seen.append([old, new])
        system.copy(old, new)
        system.rm(old)

    monkeypatch.setattr(type(memory), "mv", move)
    with write_whole("memory://slow/a.txt") as draft:
        draft.write_text("x", encoding="utf-8")
    assert memory.cat("/slow/a.txt") == b"x"
    assert [name.rsplit("/", 1)[-1][:7] for name in seen[0]] == [".a.txt-", "a.txt"]
    assert [found.name for found in find_inputs("--input", "memory://slow")] == ["a.txt"]
    memory.rm("/slow", recursive=True)


def test_outputs_of_many_files_are_scored_together(run: Path, texts: Path, tmp_path: Path) -> None:
    """The scores are those of one file with all lines."""
    for side, change in (("s", lambda line: line), ("t", lambda line: " ".join(line.split()[::-1]) or "a")):
        (tmp_path / side).mkdir()
        for name, text in read(texts).items():
            lines = "".join(f"{change(line) or 'a'}\n" for line in text.splitlines())
            (tmp_path / side / Path(name).stem).write_text(lines, encoding="utf-8")
            with (tmp_path / f"all.{side}").open("a", encoding="utf-8") as file:
                file.write(lines)
    folders = ["evaluate", run, tmp_path / "s", tmp_path / "t"]
    many = call(*folders, "--on", "local", "--output", tmp_path / "out", "--json")
    assert many.exit_code == 0, many.exception
    found = json.loads(many.stdout.splitlines()[-1])
    one = json.loads(call("evaluate", run, tmp_path / "all.s", tmp_path / "all.t", "--json").stdout)
    assert found["num_pairs"] == sum(SIZES)
    assert {"bleu", "chrf"} < found.keys()
    assert found == {name: pytest.approx(one[name]) for name in found}
    (tmp_path / "t" / "1").write_text("a\nb\n", encoding="utf-8")
    assert "/t/1: it has another number of lines than" in refused(
        call(*folders, "--on", "local", "--output", tmp_path / "out")
    )
    assert "files: 1 given with --on" in refused(call(*folders[:3], "--on", "local", "--output", tmp_path / "out"))


def test_words_of_many_files_are_aligned(run: Path, tmp_path: Path) -> None:
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        for number in range(3):
            (tmp_path / side / f"{number}.txt").write_text("a b c\nb a\n" * (number + 1), encoding="utf-8")
    chosen_head.save(run, Head(1, 0, 0), chosen_by="gold", num_pairs=1)
    many = call(
        "look",
        run,
        "--align",
        "--input",
        tmp_path / "a",
        "--target",
        tmp_path / "b",
        "--output",
        tmp_path / "out",
        "--on",
        "local",
    )
    assert many.exit_code == 0, many.exception
    files = ("--input", tmp_path / "a" / "2.txt", "--target", tmp_path / "b" / "2.txt")
    one = call("look", run, "--align", *files)
    assert read(tmp_path / "out")["2.txt"] == one.stdout
    assert one.stdout.count("\n") == 6
    assert "--gold: given with --on" in refused(
        call("look", run, "--align", *files, "--gold", "x", "--output", tmp_path / "o", "--on", "local")
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--input", "none/*", "--output", "o", "--on", "local"], "--input: there is no file at none/*"),
        (["--input", "gs3://a", "--output", "o", "--on", "local"], "--input: gs3://a: Protocol not known: gs3"),
        (["--input", "x", "--on", "local"], "--output: none given; with --on a folder is written"),
        (["--output", "o", "--on", "local"], "--input: none given; with --on it names files"),
        (["--input", "x", "--output", "o"], "--output: o given without --on, which answers many files"),
        (["--input", "x", "--output", "o", "--on", "dask"], "--on: 'dask' given; allowed: local, ray, ray://HOST:PORT"),
        (["--input", "x", "--output", "o", "--on", "local", "--workers", "2"], "--workers: 2 given with --on local"),
        (["--input", "x", "--output", "o", "--on", "local", "--attention"], "--attention: given with --on"),
        (
            ["--input", "x", "--output", "o", "--on", "local", "--threshold", "0.5"],
            "--threshold: given, but this model's",
        ),
    ],
)
def test_mistakes_are_one_line(run: Path, arguments: list[str], said: str) -> None:
    assert refused(call("predict", run, *arguments)).startswith(said)


def test_the_folder_that_is_read_is_not_written(run: Path, texts: Path) -> None:
    assert "is also read; give another folder" in refused(predict(run, texts, texts))


def test_warnings_and_counts_come_from_all_files(run: Path, texts: Path, tmp_path: Path) -> None:
    cut = predict(run, texts, tmp_path / "out", "--max-length", "1", "--beam", "1")
    assert "decoding.max_length" in cut.output
    assert f"of {sum(SIZES)} outputs" in cut.output


def test_work_is_known_by_what_its_answers_depend_on(run: Path) -> None:
    def identity(**changes: Any) -> str:
        given = {"runs": (run,), "engine": EngineChoice(), "device": None, "threads": 1, "glossary": None}
        return PredictWork(**{**given, "options": {}, "as_json": False, **changes}).identity()

    assert identity() == identity(threads=2)
    assert len({identity(), identity(options={"width": 2}), identity(as_json=True)}) == 3
