"""Small valid configs of every task, with their data: what is mutated."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import yaml
from pydantic import BaseModel

from saccade.tasks import TASKS

PAIRS = [
    ("the cat sleeps .", "le chat dort ."),
    ("a dog eats .", "un chien mange ."),
    ("birds sing !", "ils chantent !"),
] * 4
SMALL = {"width": 8, "num_heads": 2, "hidden_width": 8, "num_layers": 1}


def _aligned(folder: Path) -> dict[str, Any]:
    for side, name in enumerate(("en", "fr")):
        (folder / f"train.{name}").write_text("".join(f"{pair[side]}\n" for pair in PAIRS), "utf-8")
    files = {"source": f"{folder}/train.en", "target": f"{folder}/train.fr"}
    return {"data": {"train": files, "valid": files}, "tokenizer": {"kind": "words"}, "model": SMALL}


def _tsv(folder: Path) -> dict[str, Any]:
    rows = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()
    (folder / "train.tsv.gz").write_bytes(gzip.compress(rows))
    (folder / "valid.tsv").write_bytes(rows)
    data = {"train": [{"source": f"{folder}/train.tsv.gz", "weight": 2.0}], "valid": {"source": f"{folder}/valid.tsv"}}
    model = {"kind": "rnn", "width": 8, "embedding_width": 4}
    return {
        **yaml.safe_load("task: translate"),
        "data": data,
        "tokenizer": {"kind": "characters"},
        "model": model,
        "decoding": {"beam": 2},
    }


def _jsonl(folder: Path) -> dict[str, Any]:
    rows = "".join(f'{{"source": "{source}", "target": "{target}"}}\n' for source, target in PAIRS)
    (folder / "rows.jsonl").write_text(rows, "utf-8")
    files = {"source": f"{folder}/rows.jsonl"}
    tokenizer = {"kind": "bpe", "vocabulary_size": 290}
    return {"seed": 2, "data": {"train": files, "valid": files, "test": files}, "tokenizer": tokenizer, "model": SMALL}


def _labels(folder: Path) -> dict[str, Any]:
    rows = "".join(f"{label}\t{word} {number}\n" for number in range(6) for label, word in (("x", "a"), ("y", "b")))
    (folder / "rows.tsv").write_text(rows, "utf-8")
    data = {"train": f"{folder}/rows.tsv", "valid": f"{folder}/rows.tsv", "columns": {"label": 0, "text": 1}}
    model = {"width": 4, "embedding_width": 3}
    return {
        **yaml.safe_load("task: classify"),
        "data": data,
        "tokenizer": {"kind": "words"},
        "model": model,
        "training": {"batch_size": 4},
    }


def _tags(folder: Path) -> dict[str, Any]:
    (folder / "rows.txt").write_text("a B-X\nb O\nc I-X\n\n" * 4, "utf-8")
    data = {"train": f"{folder}/rows.txt", "valid": f"{folder}/rows.txt"}
    return {**yaml.safe_load("task: tag"), "data": data, "model": {"width": 4, "word_width": 3, "character_width": 4}}


def _shapes(folder: Path) -> dict[str, Any]:
    del folder
    data = {"kind": "shapes", "side": 24, "train": 8, "valid": 2, "test": 2}
    return {
        **yaml.safe_load("task: caption"),
        "data": data,
        "model": {"width": 8, "embedding_width": 4},
        "decoding": {"max_length": 5},
    }


def _glimpses(folder: Path) -> dict[str, Any]:
    pixels = np.random.default_rng(1).integers(0, 256, (8, 12, 12), dtype=np.uint8)
    np.savez(folder / "rows.npz", images=pixels, labels=np.arange(8) % 2)
    data = {"train": {"images": f"{folder}/rows.npz"}, "valid": {"images": f"{folder}/rows.npz"}}
    model = {"patch": 4, "num_glimpses": 2, "width": 8, "glimpse_width": 8}
    return {**yaml.safe_load("task: glimpse"), "data": data, "model": model, "training": {"batch_size": 4}}


SAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "aligned": _aligned,
    "tsv": _tsv,
    "jsonl": _jsonl,
    "labels": _labels,
    "tags": _tags,
    "shapes": _shapes,
    "glimpses": _glimpses,
}


def known_fields(content: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names of all fields of a config's task, by section."""
    config = TASKS[content.get("task", next(iter(TASKS)))].config
    found = {"": list(config.model_fields)}
    for name, field in config.model_fields.items():
        if names := sorted({one for section in _sections(field.annotation) for one in section.model_fields}):
            found[name] = names
    return found


def _sections(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections(part)]
