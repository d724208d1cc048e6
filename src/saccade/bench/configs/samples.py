"""Small valid configs of every task, with their data: what is mutated."""

from __future__ import annotations

import gzip
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from saccade.config.load import list_sections
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
    data = {"train": files, "valid": files, "test": files}
    return {"data": data, "tokenizer": {"kind": "words"}, "model": SMALL}


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


def _csv(folder: Path) -> dict[str, Any]:
    rows = "".join(f'{number},"{source}, {number}","{target}"\n' for number, (source, target) in enumerate(PAIRS))
    (folder / "rows.csv").write_text(f"id,question,reply\n{rows}", "utf-8")
    tokenizer = {"source": {"kind": "characters"}, "target": {"kind": "words"}, "shared": False}
    columns = {"source": "question", "target": "reply"}
    data = {"train": {"source": f"{folder}/rows.csv"}, "valid": 0.3, "columns": columns}
    return {"data": data, "tokenizer": tokenizer, "model": SMALL}


def _copied(folder: Path) -> dict[str, Any]:
    rows = "".join(
        f'{{"text": "{source} {number}", "title": "{number}"}}\n' for number, (source, _) in enumerate(PAIRS)
    )
    (folder / "rows.jsonl").write_text(rows, "utf-8")
    files = {"source": f"{folder}/rows.jsonl"}
    model = {"kind": "rnn", "width": 8, "embedding_width": 4, "copies": True, "coverage": True}
    data = {"train": files, "valid": files, "test": files, "columns": {"source": "text", "target": "title"}}
    return {"data": data, "tokenizer": {"kind": "words", "vocabulary_size": 8}, "model": model}


def _sound(folder: Path) -> dict[str, Any]:
    """Write lists of recordings, one of them of 24 bits and two channels."""
    chance = np.random.default_rng(1)
    for number in range(4):
        width, channels = (3, 2) if number == 3 else (2, 1)
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setparams((channels, width, 8000, 0, "NONE", ""))
            file.writeframes(chance.bytes(1600 * width * channels))
    (folder / "rows.tsv").write_text("".join(f"{number}.wav\t{number % 2}\n" for number in range(4)), "utf-8")
    files = {"source": f"{folder}/rows.tsv"}
    model = {"kind": "rnn", "attention": "bahdanau", "width": 8, "embedding_width": 4}
    features = {"rate": 8000, "num_mels": 8, "subsampling": "pyramid"}
    data = {"train": files, "valid": files, "test": files}
    return {"input": "features", "data": data, "features": features, "tokenizer": {"kind": "words"}, "model": model}


def _spoken(folder: Path) -> dict[str, Any]:
    _sound(folder)
    data = dict.fromkeys(("train", "valid", "test"), f"{folder}/rows.tsv")
    model, decoding = {"width": 8, "prenet_width": 4}, {"max_seconds": 0.5, "rounds": 2}
    frames = {"rate": 8000, "num_mels": 8}
    return {**yaml.safe_load("task: speak"), "data": data, "frames": frames, "model": model, "decoding": decoding}


def _topics(folder: Path) -> dict[str, Any]:
    rows = [{"topics": topics, "body": f"a {' '.join(topics)} b"} for topics in ([], ["x"], ["y"], ["x", "y"])]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 3), "utf-8")
    columns = {"label": "topics", "text": "body"}
    files = {"train": f"{folder}/rows.jsonl", "valid": 0.3, "test": f"{folder}/rows.jsonl"}
    data = {**files, "separator": ",", "columns": columns}
    return {**yaml.safe_load("task: classify"), "data": data, "model": {"kind": "bag", "embedding_width": 3}}


def _documents(folder: Path) -> dict[str, Any]:
    """Write texts of sentences: some as lists, some to be split."""
    said = ["It is good. It is long.", ["It is bad.", "It is short."]]
    rows = "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in zip("xy", said, strict=True))
    (folder / "rows.jsonl").write_text(rows * 4, "utf-8")
    model = {"kind": "bag", "embedding_width": 3, "pooling": "attention"}
    data = dict.fromkeys(("train", "valid", "test"), f"{folder}/rows.jsonl")
    return {
        **yaml.safe_load("task: classify"),
        "data": {**data, "max_sentences": 3},
        "model": {**model, "sentences": {"kind": "recurrent", "width": 4, "pooling": "attention"}},
    }


def _dialogues(folder: Path) -> dict[str, Any]:
    rows = "".join(f"{number // 3},{number % 2},say {number},{'ab'[number % 2]}\n" for number in range(12))
    (folder / "rows.csv").write_text(f"talk,who,what,act\n{rows}", "utf-8")
    columns = {"dialogue": "talk", "speaker": "who", "text": "what", "label": "act"}
    files = dict.fromkeys(("train", "valid", "test"), f"{folder}/rows.csv")
    data = {**files, "context": 2, "columns": columns}
    return {
        **yaml.safe_load("task: classify"),
        "data": data,
        "model": {"width": 4, "embedding_width": 3, "context_width": 4},
    }


def _tags(folder: Path) -> dict[str, Any]:
    (folder / "rows.txt").write_text("a B-X\nb O\nc I-X\n\n" * 4, "utf-8")
    data = {"train": f"{folder}/rows.txt", "valid": f"{folder}/rows.txt"}
    return {**yaml.safe_load("task: tag"), "data": data, "model": {"width": 4, "word_width": 3, "character_width": 4}}


def _tag_pairs(folder: Path) -> dict[str, Any]:
    """Write words and tags into two files; the validation set is JSONL."""
    (folder / "rows.words").write_text("a b c\nd e\n" * 4, "utf-8")
    (folder / "rows.tags").write_text("B-X O B-Y\nO O\n" * 4, "utf-8")
    (folder / "rows.jsonl").write_text('{"tokens": ["a", "b"], "tags": ["B-X", "O"]}\n' * 3, "utf-8")
    train = {"words": f"{folder}/rows.words", "tags": f"{folder}/rows.tags"}
    data = {"train": train, "valid": f"{folder}/rows.jsonl", "test": f"{folder}/rows.jsonl"}
    return {**yaml.safe_load("task: tag"), "data": data, "model": {"width": 4, "word_width": 3, "character_width": 4}}


def _tag_features(folder: Path) -> dict[str, Any]:
    (folder / "rows.txt").write_text("word pos kind\na N B-X\nb V O\nc N I-X\n\nd V O\n\n", "utf-8")
    columns = {"word_column": "word", "tag_column": "kind", "feature_columns": ["pos"]}
    data = {"train": f"{folder}/rows.txt", "valid": f"{folder}/rows.txt", "test": f"{folder}/rows.txt", **columns}
    return {
        **yaml.safe_load("task: tag"),
        "data": data,
        "model": {"width": 4, "word_width": 3, "character_width": 4, "feature_width": 2},
    }


def _pictures(folder: Path) -> dict[str, Any]:
    """Write captions of picture files: 8 bits, 16 bits, colours."""
    chance = np.random.default_rng(1)
    gray = chance.integers(0, 65536, (9, 7), dtype=np.uint16)
    Image.fromarray(gray).save(folder / "a.png")
    Image.fromarray((gray >> 8).astype(np.uint8)).save(folder / "b.png")
    Image.fromarray(chance.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / "c.jpg")
    (folder / "rows.tsv").write_text("a.png\t0\ta dog .\nb.png\t0\ta cat .\nc.jpg\t0\ttwo cats .\n", "utf-8")
    files = {"captions": f"{folder}/rows.tsv", "pictures": str(folder)}
    data = {"kind": "pictures", "side": 16, "train": files, "valid": files, "test": files}
    model = {"width": 8, "embedding_width": 4}
    return {**yaml.safe_load("task: caption"), "data": data, "model": model, "decoding": {"max_length": 5}}


def _clips(folder: Path) -> dict[str, Any]:
    chance = np.random.default_rng(1)
    frames = [Image.fromarray(chance.integers(0, 256, (8, 8, 3), dtype=np.uint8)) for _ in range(3)]
    for number in range(3):
        frames[number].save(folder / f"{number}.gif", save_all=True, append_images=frames[:number], duration=40)
    (folder / "rows.tsv").write_text("0.gif\t0\tit stops .\n1.gif\t0\tit goes .\n2.gif\t0\tit grows .\n", "utf-8")
    (folder / "rows.spans.tsv").write_text("0.gif\t2\t1\t1\n1.gif\t2\t1\t2\n2.gif\t2\t2\t3\n", "utf-8")
    files = {"captions": f"{folder}/rows.tsv", "clips": str(folder)}
    valid = {**files, "spans": f"{folder}/rows.spans.tsv"}
    data = {"kind": "clips", "side": 16, "frames": 4, "train": files, "valid": valid, "test": valid}
    model = {"width": 8, "embedding_width": 4}
    return {**yaml.safe_load("task: caption"), "data": data, "model": model, "decoding": {"max_length": 5}}


def _plain_text(folder: Path) -> dict[str, Any]:
    (folder / "rows.txt").write_text("the cat sleeps .\na dog eats .\n" * 12, "utf-8")
    data = {**dict.fromkeys(("train", "valid", "test"), f"{folder}/rows.txt"), "context": 8}
    training = {"batch_size": 2}
    return {**yaml.safe_load("task: write"), "data": data, "model": SMALL, "training": training}


def _stories(folder: Path) -> dict[str, Any]:
    rows = "".join(
        f'{{"story": ["Ann has {thing}.", "Bob has it."], "question": "Who?", "reply": "{name}", "facts": [0]}}\n'
        for thing in ("a", "b", "c", "d")
        for name in ("Ann", "Bob")
    )
    (folder / "rows.jsonl").write_text(rows, "utf-8")
    files = dict.fromkeys(("train", "valid", "test"), f"{folder}/rows.jsonl")
    data = {**files, "columns": yaml.safe_load("answer: reply")}
    return {**yaml.safe_load("task: answer"), "data": data, "model": {"width": 4}, "training": {"batch_size": 4}}


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


def _bits(folder: Path) -> dict[str, Any]:
    del folder
    data = {"width": 3, "lengths": [1, 3], "test_lengths": [3], "num_valid": 4, "num_test": 4}
    model = {"width": 6, "places": 5, "cells": 4}
    return {**yaml.safe_load("task: remember"), "data": data, "model": model, "training": {"batch_size": 4}}


def _points(folder: Path) -> dict[str, Any]:
    del folder
    data = {"sizes": [3, 5], "test_sizes": [5], "num_valid": 4, "num_test": 4}
    model = {"width": 8, "num_heads": 2, "num_layers": 1}
    return {**yaml.safe_load("task: point"), "data": data, "model": model, "training": {"batch_size": 4}}


SAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "aligned": _aligned,
    "tsv": _tsv,
    "jsonl": _jsonl,
    "csv": _csv,
    "copied": _copied,
    "sound": _sound,
    "labels": _labels,
    "topics": _topics,
    "documents": _documents,
    "dialogues": _dialogues,
    "tags": _tags,
    "tag_pairs": _tag_pairs,
    "tag_features": _tag_features,
    "plain_text": _plain_text,
    "stories": _stories,
    "shapes": _shapes,
    "pictures": _pictures,
    "clips": _clips,
    "glimpses": _glimpses,
    "bits": _bits,
    "points": _points,
    "spoken": _spoken,
}


def known_fields(content: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names of all fields of a config's task, by section."""
    config = TASKS[content.get("task", next(iter(TASKS)))].config
    found = {"": list(config.model_fields)}
    for name, field in config.model_fields.items():
        if names := sorted({one for section in list_sections(field.annotation) for one in section.model_fields}):
            found[name] = names
    return found
