"""Spoken digits, made by eSpeak NG, with the exact time of every word. For speech synthesis, and sound to text.

A string has two to five digits, said in one breath. A line of a list is a sound, what is said, and the start and end
of each word in seconds: `sounds/train_12.wav TAB seven three TAB 0.000 0.430 0.430 0.813`.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.data.sound.mel import resample
from saccade.data.sound.spoken import HEADER
from saccade.data.sound.vocoder import encode_wav
from saccade.errors import UserError
from saccade.files import replace_file
from saccade.lab.digits import WORDS

RATE = 8000
SIZES = {"train": 1500, "valid": 100, "test": 200}
LENGTHS = (2, 5)  # digits in a string
VOICE, SPEED = b"en-us", 150  # words a minute
QUIET = 0.01  # of the loudest sample; softer ends are cut
SYNCHRONOUS, WORD, UTF8, SPEED_PARAMETER = 2, 1, 1, 1  # of speak_lib.h


class SpeechEvent(ctypes.Structure):
    """An event of eSpeak NG: what begins at which sample."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


Heard = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(SpeechEvent))


class Utterance(NamedTuple):
    """Samples at `rate`, and the sample at which each word begins."""

    samples: NDArray[np.float32]
    rate: int
    starts: list[int]


class Espeak:
    """eSpeak NG, which speaks with one voice; the library has one state for a process."""

    def __init__(self) -> None:
        try:
            import espeakng_loader
        except ImportError:
            raise UserError(
                "espeakng-loader makes this speech, and it is missing; pip install 'saccade[speech]'"
            ) from None
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a copy has no state of earlier speech
            self._library = ctypes.CDLL(shutil.copy(espeakng_loader.get_library_path(), folder))
        path = espeakng_loader.get_data_path().encode()
        self._rate = int(self._library.espeak_Initialize(SYNCHRONOUS, 0, path, 0))
        if self._rate <= 0 or self._library.espeak_SetVoiceByName(VOICE):
            raise UserError("espeakng-loader: eSpeak NG does not start, or lacks its English voice")
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(1))  # of breath and noise
        self._library.espeak_SetParameter(SPEED_PARAMETER, SPEED, 0)
        self._parts: list[NDArray[np.int16]] = []
        self._starts: list[int] = []
        self._heard = Heard(self._hear)  # kept, as the library calls it
        self._library.espeak_SetSynthCallback(self._heard)

    def close(self) -> None:
        self._library.espeak_Terminate()

    def say(self, text: str) -> Utterance:
        self._parts, self._starts, spelled = [], [], text.encode()
        self._library.espeak_Synth(spelled, len(spelled) + 1, 0, 1, 0, UTF8, None, None)
        self._library.espeak_Synchronize()
        samples = np.concatenate(self._parts).astype(np.float32) / np.float32(32768)
        return Utterance(samples, self._rate, self._starts)

    def _hear(self, samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            self._parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        number = 0
        while events[number].type:
            if events[number].type == WORD:
                self._starts.append(int(events[number].sample))
            number += 1
        return 0


def make_speech(folder: Path) -> None:
    """Write the sounds, and train.tsv, valid.tsv and test.tsv; no string of digits is in two of them."""
    said = _draw_strings(random.Random(1))
    with closing(Espeak()) as espeak:
        (folder / "sounds").mkdir(parents=True)
        for name, count in SIZES.items():
            with (
                replace_file(folder / f"{name}.tsv") as draft,
                draft.open("w", encoding="utf-8", newline="\n") as lines,
            ):
                lines.write("\t".join(HEADER) + "\n")
                for number in range(count):
                    lines.write(_write(espeak, next(said), folder, f"sounds/{name}_{number}.wav"))


def _draw_strings(dice: random.Random) -> Iterator[list[str]]:
    """Draw strings of digits, none twice."""
    seen = set()
    while True:
        words = tuple(dice.choices(WORDS, k=dice.randint(*LENGTHS)))
        if words not in seen:
            seen.add(words)
            yield [*words]


def _write(espeak: Espeak, words: list[str], folder: Path, name: str) -> str:
    """Write a sound, and return its line."""
    found = espeak.say(" ".join(words))
    assert len(found.starts) == len(words), words
    loud = np.flatnonzero(np.abs(found.samples) > QUIET * np.abs(found.samples).max())
    first, last = int(loud[0]), int(loud[-1]) + 1
    samples = resample(found.samples[first:last], found.rate, RATE)
    (folder / name).write_bytes(encode_wav(samples, RATE))
    bounds = [max(0, start - first) / found.rate for start in found.starts] + [(last - first) / found.rate]
    times = " ".join(f"{start:.3f} {end:.3f}" for start, end in itertools.pairwise(bounds))
    return f"{name}\t{' '.join(words)}\t{times}\n"
