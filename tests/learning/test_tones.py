"""A model learns to hear: words that are bursts of different pitch, in strings of one to four."""

from __future__ import annotations

import random
from pathlib import Path

from rich.console import Console

from saccade.runs import config as config_file
from saccade.runs import train as runs
from saccade.runs.load import load_run
from sounds import write_words

TRAINING = {
    "max_steps": 200,
    "validate_every": 200,
    "tokens_per_batch": 512,
    "learning_rate": 0.006,
    "warmup_steps": 40,
    "schedule": "cosine",
    "label_smoothing": 0.0,
    "metric": "wer",
}
MODEL = {
    "kind": "rnn",
    "attention": "luong",
    "feeds_input": False,
    "width": 48,
    "embedding_width": 48,
    "num_layers": 1,
    "dropout": 0.0,
}


def write_list(path: Path, words: list[tuple[Path, str]], *, count: int, seed: int, shortest: int) -> Path:
    """Strings of words with pauses between them."""
    chance, lines = random.Random(seed), []
    for _ in range(count):
        chosen = chance.choices(words, k=chance.randint(shortest, 4))
        source = " ".join(f"{file.name} {chance.uniform(0.03, 0.1):.2f}" for file, _ in chosen)
        lines.append(f"{source}\t{' '.join(word for _, word in chosen)}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_it_hears_strings_of_tones(tmp_path: Path) -> None:
    words = write_words(tmp_path, 12)
    heard, unheard = ([words[row] for row in range(60) if (row % 12 > 2) is known] for known in (True, False))
    train = write_list(tmp_path / "train.tsv", heard, count=1200, seed=1, shortest=1)
    valid = write_list(tmp_path / "valid.tsv", unheard, count=60, seed=2, shortest=2)
    config = config_file.check_config(
        {
            "input": "features",
            "data": {"train": {"source": str(train)}, "valid": {"source": str(valid)}},
            "features": {"rate": 8000, "num_mels": 20, "time_masks": 0, "frequency_masks": 0},
            "tokenizer": {"kind": "words", "vocabulary_size": 20},
            "model": MODEL,
            "training": TRAINING,
            "device": "cpu",
        },
        "test",
    )
    runs.train(config, tmp_path / "run", Console(quiet=True))
    found = load_run(tmp_path / "run").evaluate([valid]).scores
    assert found["wer"] < 30  # who hears nothing is wrong in four words of five
    assert found["monotonic"] > 70  # who looks anywhere looks later in half of them
