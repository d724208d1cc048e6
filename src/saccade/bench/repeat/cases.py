"""A short training of every kind of network, on data that are made here, wide enough that threads share its sums."""

from __future__ import annotations

import json
import random
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WORDS = [f"{first}{vowel}{last}" for first in "bdfgklmn" for vowel in "aeiou" for last in "rst"]
TEXTS, PICTURES, SOUNDS, HELD_OUT = 1000, 512, 64, 8
TRAINING = {"warmup_steps": 10, "learning_rate": 0.003}
RECURRENT = {"kind": "rnn", "width": 128, "embedding_width": 128, "num_layers": 1}


def _sentences(count: int, seed: int) -> list[list[str]]:
    """Return sentences of 3 to 20 words, some words often and some rarely."""
    chance = random.Random(seed)
    weights = [1 / rank for rank in range(1, len(WORDS) + 1)]
    return [chance.choices(WORDS, weights, k=chance.randint(3, 20)) for _ in range(count)]


def _commonest(sentence: list[str]) -> str:
    """Return which of the first four words comes most often."""
    return max(WORDS[:4], key=sentence.count)


def _write_sets(folder: Path, lines: Callable[[list[list[str]]], str], ending: str) -> dict[str, str]:
    sets = {"train": _sentences(TEXTS, 1), "valid": _sentences(HELD_OUT, 2)}
    for name, sentences in sets.items():
        (folder / f"{name}.{ending}").write_text(lines(sentences), "utf-8")
    return {name: str(folder / f"{name}.{ending}") for name in sets}


def _text_to_text(folder: Path, model: dict[str, Any]) -> dict[str, Any]:
    """Make a model that writes words backwards, in two vocabularies."""
    files = _write_sets(
        folder,
        lambda sentences: "".join(f"{' '.join(one)}\t{' '.join(one[::-1]).upper()}\n" for one in sentences),
        "tsv",
    )
    data = {name: {"source": path} for name, path in files.items()}
    tokenizer = {"kind": "words", "vocabulary_size": 200, "shared": False}
    training = {**TRAINING, "tokens_per_batch": 1024, "label_smoothing": 0.1}
    return {"data": data, "tokenizer": tokenizer, "model": model, "training": training, "decoding": {"beam": 1}}


def _transformer(folder: Path) -> dict[str, Any]:
    model = {"width": 128, "num_heads": 4, "hidden_width": 256, "num_layers": 1, "dropout": 0.1}
    return _text_to_text(folder, model)


def _bahdanau(folder: Path) -> dict[str, Any]:
    return _text_to_text(folder, {**RECURRENT, "attention": "bahdanau", "score": "additive"})


def _luong(folder: Path) -> dict[str, Any]:
    return _text_to_text(folder, {**RECURRENT, "attention": "luong", "score": "general"})


def _copier(folder: Path) -> dict[str, Any]:
    """Make a model that writes words backwards, most of which the vocabulary lacks."""
    content = _text_to_text(folder, {**RECURRENT, "copies": True, "coverage": True})
    return {**content, "tokenizer": {"kind": "words", "vocabulary_size": 20}}


def _classifier(folder: Path) -> dict[str, Any]:
    """Make a classifier of which of the first four words comes most often."""
    files = _write_sets(
        folder,
        lambda sentences: "".join(f"{_commonest(one)}\t{' '.join(one)}\n" for one in sentences),
        "tsv",
    )
    model = {"width": 128, "embedding_width": 128}
    tokenizer = {"kind": "words"}
    training = {**TRAINING, "batch_size": 64}
    data = {**files, "columns": {"label": 0, "text": 1}}
    return {"task": "classify", "data": data, "tokenizer": tokenizer, "model": model, "training": training}


def _documents(folder: Path) -> dict[str, Any]:
    """Make a classifier of the same question, in texts of sentences that are read level by level."""

    def lines(sentences: list[list[str]]) -> str:
        rows = [{"label": _commonest(one), "text": [" ".join(one[:3]), *one[3:]]} for one in sentences]
        return "".join(json.dumps(row) + "\n" for row in rows)

    model = {"width": 128, "embedding_width": 128, "pooling": "attention"}
    sentences = {"kind": "recurrent", "width": 128, "pooling": "attention"}
    content = {"task": "classify", "tokenizer": {"kind": "words"}, "training": {**TRAINING, "batch_size": 64}}
    return {**content, "data": _write_sets(folder, lines, "jsonl"), "model": {**model, "sentences": sentences}}


def _tagger(folder: Path) -> dict[str, Any]:
    """Make a tagger: words that begin with b are the first of a span, those with d its rest."""
    spelling = {"b": "B-X", "d": "I-X"}
    files = _write_sets(
        folder,
        lambda sentences: "".join(
            "".join(f"{word} {spelling.get(word[0], 'O')}\n" for word in one) + "\n" for one in sentences
        ),
        "txt",
    )
    model = {"width": 128, "word_width": 100, "character_width": 50}
    return {"task": "tag", "data": files, "model": model, "training": {**TRAINING, "batch_size": 32}}


def _captioner(folder: Path, model: dict[str, Any]) -> dict[str, Any]:
    del folder
    data = {"kind": "shapes", "side": 48, "train": PICTURES, "valid": HELD_OUT, "test": HELD_OUT}
    model = {"width": 128, "embedding_width": 64, **model}
    training = {**TRAINING, "tokens_per_batch": 704}
    return {"task": "caption", "data": data, "model": model, "training": training, "decoding": {"max_length": 12}}


def _soft_captioner(folder: Path) -> dict[str, Any]:
    return _captioner(folder, {"attention": "soft"})


def _hard_captioner(folder: Path) -> dict[str, Any]:
    return _captioner(folder, {"attention": "hard", "start": "zeros", "forgetting": 0.5})


def _glimpses(folder: Path) -> dict[str, Any]:
    """Make a glimpse network that says which half of a noisy picture is lighter."""
    chance = np.random.default_rng(1)
    sets = {}
    for name, count in (("train", PICTURES), ("valid", HELD_OUT)):
        pixels = chance.integers(0, 128, (count, 28, 28), dtype=np.uint8)
        labels = np.arange(count) % 2
        pixels[labels == 1, :, 14:] += 96
        np.savez(folder / f"{name}.npz", images=pixels, labels=labels)
        sets[name] = {"images": str(folder / f"{name}.npz")}
    model = {"patch": 8, "num_glimpses": 4, "width": 256, "glimpse_width": 256, "glimpse_network": "convolution"}
    return {"task": "glimpse", "data": sets, "model": model, "training": {**TRAINING, "batch_size": 128}}


def _writing(folder: Path, model: dict[str, Any]) -> dict[str, Any]:
    files = _write_sets(folder, lambda sentences: "".join(f"{' '.join(one)}\n" for one in sentences), "txt")
    data, training = {**files, "context": 64}, {**TRAINING, "batch_size": 16}
    return {"task": "write", "data": data, "tokenizer": {"kind": "words"}, "model": model, "training": training}


def _writer(folder: Path) -> dict[str, Any]:
    return _writing(folder, {"width": 128, "num_heads": 4, "hidden_width": 256, "num_layers": 1})


def _recurrent_writer(folder: Path) -> dict[str, Any]:
    model = {"kind": "recurrent", "cell": "lstm", "width": 128, "embedding_width": 128, "attention": "states"}
    return _writing(folder, model)


def _reader(folder: Path) -> dict[str, Any]:
    """Make a reader of three sentences: which word follows this one?"""

    def lines(sentences: list[list[str]]) -> str:
        stories = [(three, three[1][0], three[1][1]) for three in zip(*[iter(sentences)] * 3, strict=False)]
        return "".join(
            json.dumps({"story": [" ".join(one) for one in story], "question": asked, "answer": said}) + "\n"
            for story, asked, said in stories
        )

    files = _write_sets(folder, lines, "jsonl")
    return {"task": "answer", "data": files, "model": {"width": 128}, "training": {**TRAINING, "batch_size": 64}}


def _sound(folder: Path) -> dict[str, Any]:
    """Make a model that hears bursts of three pitches, and writes words."""
    chance = np.random.default_rng(1)
    sets = {}
    for name, count in (("train", SOUNDS), ("valid", HELD_OUT)):
        lines = []
        for number in range(count):
            words = chance.integers(0, 3, chance.integers(2, 6))
            seconds = np.arange(2400) / 8000
            bursts = [np.sin(2 * np.pi * 300 * (word + 1) * seconds) * chance.uniform(0.2, 0.6) for word in words]
            path = folder / f"{name}{number}.wav"
            with wave.open(str(path), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes((np.concatenate(bursts) * 32767).astype("<i2").tobytes())
            lines.append(f"{path.name}\t{' '.join(WORDS[word] for word in words)}\n")
        (folder / f"{name}.tsv").write_text("".join(lines), "utf-8")
        sets[name] = {"source": str(folder / f"{name}.tsv")}
    return {
        "input": "features",
        "data": sets,
        "features": {"rate": 8000, "num_mels": 40, "subsampling": "pyramid", "tempo": 0.1},
        "tokenizer": {"kind": "words", "vocabulary_size": 20},
        "model": {**RECURRENT, "attention": "bahdanau"},
        "training": {**TRAINING, "tokens_per_batch": 4096, "metric": "wer"},
    }


def _speaker(folder: Path) -> dict[str, Any]:
    """Make a model that reads words aloud, as the same bursts."""
    sets = {name: files["source"] for name, files in _sound(folder)["data"].items()}
    frames, model = {"rate": 8000, "num_mels": 40}, {"width": 128, "prenet_width": 64}
    training = {**TRAINING, "frames_per_batch": 1024}
    decoding = {"max_seconds": 0.5, "rounds": 2}
    return {"task": "speak", "data": sets, "frames": frames, "model": model, "training": training, "decoding": decoding}


def _machine(folder: Path) -> dict[str, Any]:
    del folder
    data = {"width": 8, "lengths": [1, 8], "test_lengths": [8], "num_valid": HELD_OUT, "num_test": HELD_OUT}
    model = {"width": 128, "places": 32, "cells": 20}
    return {"task": "remember", "data": data, "model": model, "training": {**TRAINING, "batch_size": 32}}


def _pointer(folder: Path) -> dict[str, Any]:
    del folder
    data = {"sizes": [5, 10], "test_sizes": [5], "num_valid": HELD_OUT, "num_test": HELD_OUT}
    model = {"width": 128, "num_heads": 4, "num_layers": 1}
    return {"task": "point", "data": data, "model": model, "training": {**TRAINING, "batch_size": 64}}


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "transformer": _transformer,
    "bahdanau": _bahdanau,
    "luong": _luong,
    "copier": _copier,
    "classifier": _classifier,
    "documents": _documents,
    "tagger": _tagger,
    "captioner_soft": _soft_captioner,
    "captioner_hard": _hard_captioner,
    "glimpses": _glimpses,
    "sound": _sound,
    "writer": _writer,
    "recurrent_writer": _recurrent_writer,
    "reader": _reader,
    "speaker": _speaker,
    "machine": _machine,
    "pointer": _pointer,
}
