"""Telephone numbers as they sound when they are dialled: each key is two tones at once (DTMF). For sound to text.

A recording is one key on one of several telephones, short or long, loud or soft, on a line that hums and hisses.
`saccade.lab.digits` joins recordings to numbers, as it joins spoken digits.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saccade.lab import digits

RATE = 8000
TAKES = 16  # recordings of a key on a telephone: 5 for the test, 3 for validation, the others to learn from
PHONES = ("desk", "wall", "booth", "hall")
ROWS, COLUMNS = (697, 770, 852, 941), (1209, 1336, 1477)  # the tones of a key's row and column
PLACES = {"1": (0, 0), "2": (0, 1), "3": (0, 2), "4": (1, 0), "5": (1, 1), "6": (1, 2)} | {
    "7": (2, 0), "8": (2, 1), "9": (2, 2), "0": (3, 1)
}  # fmt: skip
SIZES = {"train": 3000, "valid": 150, "test": 400}


def make_dialling(folder: Path) -> None:
    """Write the recordings, keys/<digit>_<telephone>_<number>.wav, and train.tsv, valid.tsv and test.tsv."""
    random = np.random.default_rng(1)
    for number, phone in enumerate(PHONES):
        for key in sorted(PLACES):
            for take in range(TAKES):
                _write_wav(folder / "keys" / f"{key}_{phone}_{take}.wav", _press(key, number, random))
    digits.run(folder / "keys", folder, train=SIZES["train"], valid=SIZES["valid"], test=SIZES["test"])


def _press(key: str, phone: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return the sound of a key: two tones whose pitch and balance are the telephone's, and the line's noise."""
    row, column = PLACES[key]
    time = np.arange(int(random.uniform(0.08, 0.2) * RATE)) / RATE
    detuned, balance = 1 + 0.004 * (phone - 1.5), (0.8, 1.0, 1.3, 0.6)[phone]
    low = np.sin(2 * np.pi * ROWS[row] * detuned * time + random.uniform(0, 6.3))
    high = balance * np.sin(2 * np.pi * COLUMNS[column] * detuned * time + random.uniform(0, 6.3))
    hum = 0.3 * np.sin(2 * np.pi * 50 * time + random.uniform(0, 6.3))
    edge = np.minimum(1, np.minimum(time, time[::-1]) / 0.01)  # ten milliseconds to swell and to fade
    sound = edge * (low + high) + hum + random.normal(0, 0.25, len(time))
    return sound * random.uniform(0.05, 0.25)


def _write_wav(path: Path, sound: NDArray[np.float64]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
