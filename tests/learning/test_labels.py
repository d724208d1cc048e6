"""Labels are learned: the word that decides is found and weighs most, and what was said before is used."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from rich.console import Console

from saccade.data.labels.labelled import Text
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.tasks.classify.predictor import Classifier
from saccade.tasks.classify.task import load

NOISE = [f"w{number}" for number in range(40)]
DECIDING = {f"key{number}": f"label{number % 4}" for number in range(12)}  # three words for each of four labels
TRAINING = {"learning_rate": 0.01, "warmup_steps": 10, "schedule": "cosine", "precision": "float32"}


def trained(folder: Path, content: dict[str, Any]) -> Classifier:
    (folder / "config.yaml").write_text(json.dumps({"task": "classify", "device": "cpu", **content}), "utf-8")
    config = config_file.load_config(folder / "config.yaml")
    train.train(config, folder / "run", Console(quiet=True))
    return load(config_file.load_config(folder / "run" / "config.yaml"), folder / "run")


def document(chance: random.Random) -> tuple[str, str, str]:
    """Its label, its text, and the one word in it that decides."""
    word = chance.choice(list(DECIDING))
    words = [*chance.choices(NOISE, k=11), word]
    chance.shuffle(words)
    return DECIDING[word], " ".join(words), word


def test_the_word_that_decides_is_the_key_term(tmp_path: Path) -> None:
    """A blind guess is right in a quarter of the documents, and a word at random in a twelfth."""
    chance = random.Random(1)
    documents = [document(chance) for _ in range(1000)]
    for name, part in (("train", documents[:800]), ("valid", documents[800:900])):
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{label} {text}" for label, text, _ in part), "utf-8")
    predictor = trained(
        tmp_path,
        {
            "data": {name: str(tmp_path / f"{name}.txt") for name in ("train", "valid")},
            "model": {"kind": "bag", "embedding_width": 32, "dropout": 0.1},
            "training": {**TRAINING, "max_steps": 120, "batch_size": 40, "validate_every": 60},
        },
    )
    test = documents[900:]
    found = predictor.predict([text for _, text, _ in test], key_terms=1)
    assert sum(one.label == label for one, (label, _, _) in zip(found, test, strict=True)) >= 95
    terms = [(one.key_terms or [])[0].word for one in found]
    assert sum(term == word for term, (_, _, word) in zip(terms, test, strict=True)) >= 90


def conversation(chance: random.Random, number: int) -> list[tuple[str, str, str, str]]:
    """Questions and answers. "yes" agrees after an opinion, and answers after a question; alone, nobody can tell.

    A second "yes" by the one who asked goes on with the question: it takes to know who spoke.
    """
    lines = []
    for _ in range(6):
        asked = chance.random() < 0.5
        lines.append((f"d{number}", "A", f"{chance.choice(NOISE)} {'?' if asked else '.'}", "q" if asked else "o"))
        speaker = chance.choice("AB")
        label = "more" if speaker == "A" else "answer" if asked else "agree"
        lines.append((f"d{number}", speaker, "yes", label))
    return lines


def test_what_was_said_before_and_by_whom_is_used(tmp_path: Path) -> None:
    """Half of the texts are "yes": without context at most half of those can be right, three quarters of all."""
    chance = random.Random(1)
    talks = [conversation(chance, number) for number in range(100)]
    for name, part in (("train", talks[:80]), ("valid", talks[80:90])):
        lines = ["\t".join(line) for talk in part for line in talk]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines), "utf-8")
    columns = {"dialogue": 0, "speaker": 1, "text": 2, "label": 3}
    predictor = trained(
        tmp_path,
        {
            "data": {
                **{name: str(tmp_path / f"{name}.tsv") for name in ("train", "valid")},
                "columns": columns,
                "context": 1,
            },
            "model": {"kind": "bag", "embedding_width": 16, "pooling": "mean", "context_width": 16, "dropout": 0.0},
            "training": {**TRAINING, "max_steps": 100, "batch_size": 64, "validate_every": 50},
        },
    )
    test = [Text(text, label, dialogue, speaker) for talk in talks[90:] for dialogue, speaker, text, label in talk]
    right = [one.label == text.label for one, text in zip(predictor.predict(test), test, strict=True)]
    assert sum(right) / len(right) >= 0.97
