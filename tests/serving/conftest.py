"""Small runs of every task, and a server of them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from runs import make_run
from saccade import manifest
from saccade.runs import config as config_file
from saccade.serving.models import ServedRun, load_runs
from saccade.tasks import TASKS
from saccade.training import checkpoints
from servers import Serving, serving

TRAINING = {"max_steps": 1, "validate_every": 1}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="session")
def translating(folder: Path) -> list[ServedRun]:
    """English to French, and back: words a to h, learned by nobody."""
    torch.manual_seed(7)
    there = make_run(folder / "there", "languages.source=en", "languages.target=fr", "decoding.beam=2")
    torch.manual_seed(8)
    back = make_run(folder / "back", "languages.source=fr", "languages.target=en", "seed=5")
    return load_runs([there, back])


@pytest.fixture(scope="session")
def judging(folder: Path) -> list[ServedRun]:
    """A run of every other task."""
    contents = {"labels": labels(folder), "tags": tags(folder), "glimpses": glimpses(folder), "shapes": SHAPES}
    contents["texts"] = texts(folder)
    for name, content in contents.items():
        untrained(content, folder / name)
    return load_runs([folder / name for name in contents])


@pytest.fixture(scope="session")
def served(translating: list[ServedRun]) -> Iterator[Serving]:
    with serving(translating) as found:
        yield found


@pytest.fixture(scope="session")
def all_served(translating: list[ServedRun], judging: list[ServedRun]) -> Iterator[Serving]:
    with serving([*translating, *judging]) as found:
        yield found


SHAPES: dict[str, Any] = {
    "task": "caption",
    "data": {"kind": "shapes", "side": 24, "train": 8, "valid": 2, "test": 2},
    "model": {"width": 8, "embedding_width": 4},
    "training": TRAINING,
    "decoding": {"max_length": 5},
}


def untrained(content: dict[str, Any], folder: Path) -> None:
    """A run as training leaves it, without the training."""
    config = config_file.check_config(content, folder.name)
    folder.mkdir()
    manifest.begin(folder)
    job = TASKS[config.task].prepare(config, folder, Console(quiet=True))
    for name, text in job.stored.items():
        manifest.write(folder, name, text)
    config_file.save_config(config, folder / "config.yaml")
    checkpoints.save_weights(folder / "model.safetensors", job.network)


def labels(folder: Path) -> dict[str, Any]:
    rows = "".join(f"{label}\t{word} {number}\n" for number in range(6) for label, word in (("x", "a"), ("y", "b")))
    (folder / "rows.tsv").write_text(rows, encoding="utf-8")
    data = {"train": f"{folder}/rows.tsv", "valid": f"{folder}/rows.tsv", "columns": {"label": 0, "text": 1}}
    model = {"width": 4, "embedding_width": 3}
    return {"task": "classify", "data": data, "tokenizer": {"kind": "words"}, "model": model, "training": TRAINING}


def tags(folder: Path) -> dict[str, Any]:
    (folder / "rows.txt").write_text("a B-X\nb O\n\n" * 3, encoding="utf-8")
    data = {"train": f"{folder}/rows.txt", "valid": f"{folder}/rows.txt"}
    model = {"width": 4, "word_width": 3, "character_width": 4}
    return {"task": "tag", "data": data, "model": model, "training": TRAINING}


def texts(folder: Path) -> dict[str, Any]:
    (folder / "texts.txt").write_text("a b c\nb c a\n" * 4, encoding="utf-8")
    data = {"train": f"{folder}/texts.txt", "context": 64}
    model = {"width": 8, "num_heads": 2, "hidden_width": 8, "num_layers": 2, "positions": "rotary"}
    return {"task": "write", "data": data, "tokenizer": {"kind": "words"}, "model": model, "training": TRAINING}


def glimpses(folder: Path) -> dict[str, Any]:
    pixels = np.random.default_rng(1).integers(0, 256, (8, 12, 12), dtype=np.uint8)
    np.savez(folder / "rows.npz", images=pixels, labels=np.arange(8) % 2)
    data = {"train": {"images": f"{folder}/rows.npz"}, "valid": {"images": f"{folder}/rows.npz"}}
    model = {"patch": 4, "num_glimpses": 2, "width": 8, "glimpse_width": 8}
    return {"task": "glimpse", "data": data, "model": model, "training": {**TRAINING, "batch_size": 4}}
