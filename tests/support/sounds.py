"""Sounds for tests: words that are bursts of different pitch."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from saccade.runs import config as config_file
from saccade.runs import train

PITCHES = {"low": 200.0, "middle": 450.0, "high": 900.0, "shrill": 1700.0, "thin": 3000.0}


def tone(pitch: float, seconds: float, *, rate: int = 8000, volume: float = 0.5) -> NDArray[np.float32]:
    """A sine."""
    return np.asarray(volume * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate), np.float32)


def write_wav(path: Path, samples: NDArray[np.float32], *, rate: int = 8000, width: int = 2, channels: int = 1) -> Path:
    """A PCM file; several channels are interleaved already."""
    full = 2 ** (8 * width - 1) - 1
    values = np.round(samples.astype(np.float64) * full).astype("<i4")
    raw = (values + 128).astype(np.uint8) if width == 1 else values.view(np.uint8).reshape(-1, 4)[:, :width]
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(raw.tobytes())
    return path


def write_words(folder: Path, count: int, seed: int = 1) -> list[tuple[Path, str]]:
    """Bursts of about each word's pitch, with lengths, volumes and noise by chance."""
    random, found = np.random.default_rng(seed), []
    for word, pitch in PITCHES.items():
        for number in range(count):
            burst = tone(
                pitch * random.uniform(0.95, 1.05), random.uniform(0.08, 0.16), volume=random.uniform(0.1, 0.6)
            )
            noisy = burst + np.asarray(random.normal(0, 0.01, len(burst)), np.float32)
            found.append((write_wav(folder / f"{word}{number}.wav", noisy), word))
    return found


def make_hearing(run: Path) -> list[Path]:
    """Train a run that hears one word; return the files of its sounds."""
    words = write_words(run.parent / "sounds", 3)
    rows = run.parent / "list.tsv"
    rows.write_text("".join(f"{file}\t{word}\n" for file, word in words), encoding="utf-8")
    content = {
        "input": "features",
        "device": "cpu",
        "data": {"train": {"source": str(rows)}, "valid": {"source": str(rows)}},
        "features": {"rate": 8000, "num_mels": 11},
        "tokenizer": {"kind": "words", "vocabulary_size": 20},
        "model": {"kind": "rnn", "width": 10, "embedding_width": 12},
        "training": {"max_steps": 30, "validate_every": 30, "tokens_per_batch": 300, "learning_rate": 0.02},
    }
    train.train(config_file.check_config(content, run.name), run, Console(quiet=True))
    return [file for file, _ in words]
