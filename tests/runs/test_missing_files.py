"""Loading a run: nothing is written into it, and what is wrong with it is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from runs import make_run
from saccade import manifest
from saccade.errors import UserError
from saccade.runs.load import load_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


@pytest.mark.parametrize("name", ["tokenizer.source.json", "tokenizer.target.json"])
def test_a_missing_file_is_named_and_nothing_is_written(name: str, run: Path) -> None:
    (run / name).unlink()
    before = sorted(run.iterdir())
    with pytest.raises(UserError, match=rf"{name}: this file of the run is missing"):
        load_run(run)
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize("content", ["{", "[]", '{"kind": "words"}', "\udcff"])
def test_a_damaged_vocabulary_is_named(content: str, run: Path) -> None:
    (run / "tokenizer.source.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    manifest.record(run, "tokenizer.source.json")  # it never was a vocabulary
    with pytest.raises(UserError, match=r"tokenizer\.source\.json is damaged"):
        load_run(run)


EDITS = {
    "model.width=32": r"model\.safetensors: these weights belong to another model.* is 16 here and 32 there",
    "model.num_layers=3": r"model\.safetensors: these weights belong to another model.*only one of them has ",
    "model.width=wide": r"config\.yaml: model\.width: 'wide' given",
    "task=classify": r"config\.yaml: data\.",
    "task=[1]": r"config\.yaml: task: \[1\] given; allowed: translate",
    "seed=2024-13-45": r"config\.yaml: this is not YAML",
    "model=none": r"config\.yaml: model: ",
}


@pytest.mark.parametrize("edit", list(EDITS))
def test_an_edited_config_is_one_line(edit: str, run: Path) -> None:
    (names, value), path = edit.split("="), run / "config.yaml"
    content = yaml.safe_load(path.read_text("utf-8"))
    *sections, field = names.split(".")
    place = content
    for section in sections:
        place = place[section]
    place[field] = "EDITED"
    path.write_text(yaml.safe_dump(content).replace("EDITED", value), "utf-8")
    manifest.record(run, "config.yaml")  # what `saccade config accept` does with a valid one
    with pytest.raises(UserError, match=EDITS[edit]) as found:
        load_run(run)
    assert "\n" not in str(found.value)
