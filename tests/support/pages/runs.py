"""Small runs of every task, as a page shows them: two translators, a classifier, a tagger, a captioner, a glimpser."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from runs import make_run
from saccade import manifest
from saccade.inspection.align import chosen_head
from saccade.inspection.insight import Head
from saccade.runs import check, train
from saccade.runs import config as config_file

ENGLISH = ["the", "a", "cat", "dog", "bird", "sees", "hears", "likes", "small", "old"]
FRENCH = ["le", "un", "chat", "chien", "oiseau", "voit", "entend", "aime", "petit", "vieux"]
PAGE_RUNS = ["pieces", "words", "labels", "tags", "shapes", "digits"]
EXAMPLES = ["the small cat sees a bird .", "a dog likes the old cat ."]
RNN = {"kind": "rnn", "width": 14, "embedding_width": 10, "attention": "luong"}
TRAINING = {"max_steps": 2, "validate_every": 2, "precision": "float32"}


def make_all(folder: Path) -> None:
    """All of PAGE_RUNS. The first translates, in pieces, and has examples.

    The second, of words, has learned nothing, but has a head that aligns.
    """
    draft = Path(tempfile.mkdtemp(dir=folder.parent))
    torch.manual_seed(12)
    words = [*ENGLISH, *FRENCH]
    make_run(
        draft / "words", "languages.source=en", "languages.target=fr", "decoding.max_length=6", words=words, model=RNN
    )
    contents = {"pieces": _pieces(draft), "labels": _labels(draft), "tags": _tags(draft), "shapes": shapes()}
    for name, content in {**contents, "digits": digits(draft)}.items():
        train.train(config_file.check_config({"device": "cpu", **content}, name), draft / name, Console(quiet=True))
    chosen_head.save(draft / "words", Head(0, 0, shift=1))
    manifest.write(draft / "pieces", check.EXAMPLES, "\n".join(EXAMPLES))
    draft.rename(folder)


def _pieces(folder: Path) -> dict[str, Any]:
    """Sentences in which an adjective changes its place."""
    pairs = [_pair(np.random.default_rng(number)) for number in range(300)]
    for side, name in enumerate(("en", "fr")):
        (folder / f"pairs.{name}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    sides = {"source": f"{folder}/pairs.en", "target": f"{folder}/pairs.fr"}
    training = {"max_steps": 100, "validate_every": 100, "tokens_per_batch": 600, "learning_rate": 0.01}
    return {
        "data": {"train": sides, "valid": sides},
        "tokenizer": {"kind": "bpe", "vocabulary_size": 310},
        "model": {"width": 32, "num_heads": 2, "hidden_width": 64, "num_layers": 2, "dropout": 0.0},
        "training": {**TRAINING, **training, "warmup_steps": 20},
    }


def _pair(random: np.random.Generator) -> tuple[str, str]:
    (subject, sujet), (thing, chose), verb = _noun(random), _noun(random), random.integers(5, 8)
    return f"{subject} {ENGLISH[verb]} {thing} .", f"{sujet} {FRENCH[verb]} {chose} ."


def _noun(random: np.random.Generator) -> tuple[str, str]:
    article, noun, adjective = random.integers(0, 2), random.integers(2, 5), random.integers(8, 10)
    if random.random() < 0.5:
        return f"{ENGLISH[article]} {ENGLISH[noun]}", f"{FRENCH[article]} {FRENCH[noun]}"
    parts = [(ENGLISH, (article, adjective, noun)), (FRENCH, (article, noun, adjective))]
    english, french = (" ".join(words[index] for index in order) for words, order in parts)
    return english, french


def _labels(folder: Path) -> dict[str, Any]:
    rows = [f"{label}\t{word} {other}\n" for label, word in (("x", "small"), ("y", "old")) for other in ENGLISH]
    (folder / "labels.tsv").write_text("".join(rows), encoding="utf-8")
    data = {"train": f"{folder}/labels.tsv", "valid": f"{folder}/labels.tsv", "columns": {"label": 0, "text": 1}}
    model = {"kind": "transformer", "width": 8, "num_heads": 2, "pooling": "structured", "num_hops": 3}
    return {"task": "classify", "data": data, "tokenizer": {"kind": "words"}, "model": model, "training": TRAINING}


def _tags(folder: Path) -> dict[str, Any]:
    (folder / "tags.txt").write_text("Anna B-PER\nLee I-PER\nsees O\nParis B-LOC\n\n" * 4, encoding="utf-8")
    data = {"train": f"{folder}/tags.txt", "valid": f"{folder}/tags.txt"}
    model = {"width": 8, "word_width": 8, "character_width": 4, "dropout": 0.0}
    training = {"max_steps": 40, "validate_every": 40, "learning_rate": 0.05, "warmup_steps": 1}
    return {"task": "tag", "data": data, "model": model, "training": {**TRAINING, **training}}


def shapes() -> dict[str, Any]:
    """A captioner of painted shapes."""
    data = {"kind": "shapes", "side": 24, "train": 8, "valid": 2, "test": 2}
    model = {"width": 8, "embedding_width": 4}
    return {"task": "caption", "data": data, "model": model, "training": TRAINING, "decoding": {"max_length": 5}}


def digits(folder: Path) -> dict[str, Any]:
    """A glimpser of noise on canvases of 40 pixels."""
    pixels = np.random.default_rng(1).integers(0, 256, (8, 28, 28), dtype=np.uint8)
    np.savez(folder / "digits.npz", images=pixels, labels=np.arange(8) % 4)
    files = {"images": f"{folder}/digits.npz"}
    model = {"patch": 6, "num_glimpses": 5, "width": 8, "glimpse_width": 8}
    data = {"train": files, "valid": files, "canvas": 40}
    return {"task": "glimpse", "data": data, "model": model, "training": {**TRAINING, "batch_size": 4}}
