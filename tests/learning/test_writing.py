"""Texts that repeat themselves are learned: a Transformer looks back at what it copies."""

from __future__ import annotations

import random
from pathlib import Path

from rich.console import Console

from saccade.runs import config as config_file
from saccade.runs import train
from saccade.runs.load import load_run

LETTERS = "abcdefgh"


def test_what_stands_before_is_copied(tmp_path: Path) -> None:
    """A blind guess is right in an eighth of the letters."""
    chance = random.Random(1)
    words = [" ".join(chance.choices(LETTERS, k=3)) for _ in range(900)]
    (tmp_path / "text.txt").write_text("".join(f"{one} | {one}\n" for one in words[:850]), encoding="utf-8")
    content = {
        "task": "write",
        "device": "cpu",
        "data": {"train": str(tmp_path / "text.txt"), "context": 24},
        "tokenizer": {"kind": "words"},
        "model": {"width": 32, "num_heads": 4, "num_layers": 1, "positions": "relative", "dropout": 0.0},
        "training": {"max_steps": 450, "batch_size": 24, "learning_rate": 0.005, "precision": "float32"},
    }
    train.train(config_file.check_config(content, "copy"), tmp_path / "run", Console(quiet=True))
    writer = load_run(tmp_path / "run")
    found = writer.predict([f"{one} |" for one in words[850:]], beam=1, max_length=4)
    pairs = zip(found, words[850:], strict=True)
    right = [
        one == wanted
        for text, word in pairs
        for one, wanted in zip(text.line().split()[4:], word.split(), strict=False)
    ]
    assert sum(right) >= 135, sum(right)  # of 150
