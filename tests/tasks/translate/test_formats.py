"""Every command reads a file as training did: of one with columns, the source and the target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from runs import make_run
from saccade.cli import app
from saccade.errors import UserError
from saccade.runs.config import check_config

RUNNER = CliRunner()
PAIRS = [("a b c", "b a"), ("d e", "e d f"), ("h", "g")]
TABLES = {
    "pairs.tsv": "german\tid\tenglish\n" + "".join(f"{target}\t7\t{source}\n" for source, target in PAIRS),
    "pairs.csv": "english,german\n" + "".join(f'"{source}",{target}\n' for source, target in PAIRS),
    "pairs.jsonl": "".join(
        json.dumps({"translation": {"english": source, "german": target}}) + "\n" for source, target in PAIRS
    ),
}
NEW = {
    "new.tsv": "english\n" + "".join(f"{source}\n" for source, _ in PAIRS),
    "new.csv": "id,english\n" + "".join(f"7,{source}\n" for source, _ in PAIRS),
    "new.jsonl": "".join(json.dumps({"english": source}) + "\n" for source, _ in PAIRS),
    "new.txt": "".join(f"{source}\n" for source, _ in PAIRS),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files and a run whose config names the columns."""
    folder = tmp_path_factory.mktemp("formats")
    for name, content in {**TABLES, **NEW, "new.ref": "".join(f"{target}\n" for _, target in PAIRS)}.items():
        (folder / name).write_text(content, "utf-8")
    torch.manual_seed(7)
    columns = "data.columns={source: english, target: german}"
    make_run(folder / "run", f"data.test.source={folder / 'pairs.tsv'}", columns)
    return folder


def shown(place: Path, command: str, *arguments: str) -> str:
    done = RUNNER.invoke(app, [command, str(place / "run"), *arguments])
    assert done.exit_code == 0, done.exception
    return done.stdout


def test_sources_are_predicted_and_evaluated_whatever_file_they_stand_in(place: Path) -> None:
    plain = shown(place, "predict", "--input", str(place / "new.txt"))
    assert len(plain.splitlines()) == len(PAIRS)
    for name in (*TABLES, *NEW):
        assert shown(place, "predict", "--input", str(place / name)) == plain
    scores = shown(place, "evaluate", str(place / "new.txt"), str(place / "new.ref"))
    for name in TABLES:
        assert shown(place, "evaluate", str(place / name)) == scores


@pytest.mark.parametrize("name", ["pairs.csv"])  # the others are read by the same function
def test_looking_reads_sides_as_training_did(name: str, place: Path) -> None:
    table, both = str(place / name), [str(place / "new.txt"), "--target", str(place / "new.ref")]
    own = shown(place, "look", "--input", table, "--json")
    assert own == shown(place, "look", "--input", both[0], "--json")
    given = shown(place, "look", "--input", table, "--target", table, "--json")
    assert given == shown(place, "look", "--input", *both, "--json")
    assert given != own
    assert shown(place, "look", "--align", "--input", table) == shown(place, "look", "--align", "--input", *both)
    trusted = shown(place, "look", "--trust", "--input", table, "--target", table, "--json")
    assert trusted == shown(place, "look", "--trust", "--input", *both, "--json")


def test_a_file_without_these_columns_says_which_it_has(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("french,german\nun,eins\n", "utf-8")
    for command, *arguments in (("predict", "--input"), ("look", "--input"), ("evaluate",)):
        refused = RUNNER.invoke(app, [command, str(place / "run"), *arguments, str(path)]).exception
        assert isinstance(refused, UserError)
        assert "other.csv:1: no column 'english' (data.columns.source) in its header: french, german" in str(refused)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"source": [], "target": 1}, r"data\.columns\.source: \[\] given; allowed: a column, or a list"),
        ({"source": [True], "target": 1}, r"data\.columns\.source: \[True\] given; allowed: the name of a column, or"),
        ({"source": [0, "x"], "target": 1}, r"data\.columns\.source and target: names and positions given together"),
        ({"source": [0, 1], "target": 1}, r"data\.columns\.source and target: a column is given twice \(0, 1, 1\)"),
    ],
)
def test_columns_that_are_none(columns: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_config({"data": {"train": {"source": "a.tsv"}, "valid": 0.1, "columns": columns}}, "test")
