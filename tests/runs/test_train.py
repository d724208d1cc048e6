"""Runs of every task: one that is refused stays as it was, and a folder holds one task."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import saccade
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import train

QUIET = Console(quiet=True)
TRAINING = {"max_steps": 2, "validate_every": 2}


def labels(folder: Path, words: str) -> dict[str, Any]:
    rows = "".join(
        f"{label}\t{word} {number}\n" for number in range(6) for label, word in zip("ab", words, strict=True)
    )
    (folder / "rows.tsv").write_text(rows, encoding="utf-8")
    return {
        "task": "classify",
        "data": {"train": f"{folder}/rows.tsv", "valid": f"{folder}/rows.tsv", "columns": {"label": 0, "text": 1}},
        "tokenizer": {"kind": "words"},
        "model": {"width": 4, "embedding_width": 3},
        "training": TRAINING,
    }


def tags(folder: Path, words: str) -> dict[str, Any]:
    (folder / "rows.txt").write_text(f"{words[0]} B-X\n{words[1]} O\n\n" * 3, encoding="utf-8")
    return {
        "task": "tag",
        "data": {"train": f"{folder}/rows.txt", "valid": f"{folder}/rows.txt"},
        "model": {"width": 4, "word_width": 3, "character_width": 4},
        "training": TRAINING,
    }


def glimpses(folder: Path, words: str) -> dict[str, Any]:
    pixels = np.random.default_rng(ord(words[0])).integers(0, 256, (8, 12, 12), dtype=np.uint8)
    np.savez(folder / "rows.npz", images=pixels, labels=np.arange(8) % 2)
    files = {"images": f"{folder}/rows.npz"}
    return {
        "task": "glimpse",
        "data": {"train": files, "valid": files},
        "model": {"patch": 4, "num_glimpses": 2, "width": 8, "glimpse_width": 8},
        "training": {**TRAINING, "batch_size": 4},
    }


def trained(content: dict[str, Any], folder: Path) -> dict[str, bytes]:
    train.train(config_file.check_config(content, "test"), folder, QUIET)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".json", ".yaml")}


@pytest.mark.parametrize("task", [labels, tags, glimpses])
def test_a_run_that_is_refused_stays_as_it_was(tmp_path: Path, task: Any) -> None:
    before = trained(task(tmp_path, "xy"), tmp_path / "run")
    with pytest.raises(UserError, match="the training data have changed"):
        trained(task(tmp_path, "zy"), tmp_path / "run")
    for name, content in before.items():
        assert (tmp_path / "run" / name).read_bytes() == content, name
    saccade.load(tmp_path / "run")


@pytest.mark.parametrize(("first", "second"), [(tags, labels), (labels, tags), (glimpses, tags)])
def test_a_folder_holds_one_task(tmp_path: Path, first: Any, second: Any) -> None:
    trained(first(tmp_path, "xy"), tmp_path / "run")
    with pytest.raises(UserError, match="holds a run with another task"):
        trained(second(tmp_path, "xy"), tmp_path / "run")


@pytest.mark.parametrize("task", [labels, tags, glimpses])
def test_a_lone_string_is_not_read_letter_by_letter(tmp_path: Path, task: Any) -> None:
    trained(task(tmp_path, "xy"), tmp_path / "run")
    with pytest.raises(UserError, match="it takes a list of inputs"):
        saccade.load(tmp_path / "run").predict("x y")


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (tags, {"model": {"characters": "lstm", "character_width": 51}}, "character_width: 51 given"),
        (
            tags,
            {"model": {"kind": "transformer", "score": "location"}},
            "score: 'location' given; it ends at some position",
        ),
        (glimpses, {"data": {"resize": 5}}, "data.resize: 5 given; it is for folders of pictures"),
    ],
)
def test_what_cannot_be_is_said_at_once(tmp_path: Path, task: Any, changes: dict[str, Any], message: str) -> None:
    content = task(tmp_path, "xy")
    for section, fields in changes.items():
        content[section] = {**content[section], **fields}
    with pytest.raises(UserError, match=message):
        trained(content, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_shapes_are_told_in_words() -> None:
    with pytest.raises(UserError, match="where nouns look is measured in shapes"):
        config_file.check_config({"task": "caption", "tokenizer": {"kind": "characters"}}, "test")


@pytest.mark.parametrize(
    ("count", "size"), [("time_masks", "time_mask_frames"), ("frequency_masks", "frequency_mask_mels")]
)
def test_masks_that_are_never_drawn_have_no_size(count: str, size: str) -> None:
    data = {"train": {"source": "a.tsv"}, "valid": {"source": "b.tsv"}}
    with pytest.raises(UserError, match=f"{size}: 3 given; it has no effect with {count}: 0"):
        config_file.check_config({"input": "features", "data": data, "features": {count: 0, size: 3}}, "test")


def test_shapes_are_tried_on_as_many_as_the_config_says(tmp_path: Path) -> None:
    content = {
        "task": "caption",
        "data": {"side": 24, "train": 8, "valid": 3, "test": 5},
        "model": {"width": 8, "embedding_width": 4},
        "training": {**TRAINING, "tokens_per_batch": 60},
    }
    trained(content, tmp_path / "run")
    assert saccade.load(tmp_path / "run").evaluate([]).scores["num_pictures"] == 5


def test_what_ends_before_it_learned_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(train, "_prepare", fail)
    with pytest.raises(MemoryError):
        train.train(config_file.check_config(labels(tmp_path, "pq"), "test"), tmp_path / "run", QUIET)
    assert not (tmp_path / "run").exists()


def test_a_core_that_is_left_to_others_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Console(record=True, width=200, file=io.StringIO())
    monkeypatch.setattr(train, "usual_threads", lambda: 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [train._choose_threads(tmp_path, number, said) for number in (None, 2, 1)] == [1, 2, 1]
    assert said.export_text() == "threads: 1 (a core is left to others; --threads 2 takes all)\n"


def test_a_report_may_be_left_to_a_later_call(tmp_path: Path) -> None:
    config, run = config_file.check_config(labels(tmp_path, "xy"), "test"), tmp_path / "run"
    train.train(config, run, QUIET, reports=False)
    weights = (run / "model.safetensors").read_bytes()
    train.train(config, run, QUIET, reports=False)
    assert not (run / "report.html").exists()
    train.train(config, run, QUIET)
    assert (run / "report.html").exists()
    assert (run / "model.safetensors").read_bytes() == weights
