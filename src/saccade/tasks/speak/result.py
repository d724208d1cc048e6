"""Results of a synthesizer: frames, the sound, and when it read each word."""

from __future__ import annotations

import base64
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from saccade.data.sound.mel import Mel
from saccade.data.sound.spoken import Times, is_monotone, word_times, words_of
from saccade.data.sound.vocoder import encode_wav, synthesize
from saccade.files import replace_file
from saccade.inspection.draw import heatmap, sound
from saccade.inspection.insight import round_weights
from saccade.tasks.base import Result


class Voice:
    """The way from frames to sound: their settings, the deviation that scaled them, and rounds of Griffin-Lim."""

    def __init__(self, mel: Mel, deviation: float, rounds: int) -> None:
        self.mel, self.deviation, self.rounds = mel, deviation, rounds

    def speak(self, frames_TF: NDArray[np.float32]) -> NDArray[np.float32]:
        return synthesize(frames_TF * np.float32(self.deviation), self.mel, rounds=self.rounds)


@final
@dataclass(frozen=True)
class Speech(Result):
    """A text's frames [T, F], what each step read of its characters [L, S], and whether it ended by itself."""

    text: str
    pieces: list[str]
    frames_TF: NDArray[np.float32]
    weight_LS: Tensor
    step_seconds: float
    ended: bool
    voice: Voice
    shows_weights: bool = False

    @functools.cached_property
    def samples(self) -> NDArray[np.float32]:
        """The sound, between -1 and 1."""
        return self.voice.speak(self.frames_TF)

    @property
    def rate(self) -> int:
        """Return the number of samples in a second."""
        return self.voice.mel.rate

    @property
    def seconds(self) -> float:
        return round(len(self.frames_TF) * self.voice.mel.hop, 6)

    @property
    def is_monotone(self) -> bool:
        """Return True if it never read back."""
        return is_monotone(self.weight_LS)

    def words(self) -> list[tuple[str, tuple[float, float] | None]]:
        """Return the words with the time in which each was read; None: no step read it most."""
        words = words_of(self.text)
        times = word_times(self.weight_LS, words, self.step_seconds)
        return [(word.text, time) for word, time in zip(words, times, strict=True)]

    def line(self) -> str:
        said = " ".join(word if time is None else f"{word} {time[0]:.2f}" for word, time in self.words())
        return f"{self.text}\t{self.seconds:.2f} s\t{said}" if self.text else ""

    def plain(self) -> dict[str, Any]:
        words = [{"word": word, "start": time and time[0], "end": time and time[1]} for word, time in self.words()]
        found = {"text": self.text, "seconds": self.seconds, "ended": self.ended, "monotone": self.is_monotone}
        found |= {"words": words, "rate": self.rate, "step_seconds": self.step_seconds}
        found["wav"] = base64.b64encode(encode_wav(self.samples, self.rate)).decode()
        return {**found, "attention": round_weights(self.weight_LS)} if self.shows_weights else found

    def show(self, console: Console) -> None:
        """Print which words each tenth of a second read."""
        words = words_of(self.text)
        if not self.shows_weights or not words:
            return
        every = max(1, round(0.1 / self.step_seconds))
        chosen_LS = self.weight_LS[::every]
        table = chosen_LS.new_zeros(len(chosen_LS), len(words))
        for place, word in enumerate(words):
            table[:, place] = chosen_LS[:, word.first : word.last].sum(-1)
        times = [f"{step * every * self.step_seconds:.1f} s" for step in range(len(chosen_LS))]
        console.print(heatmap.in_terminal(table, queries=times, keys=[word.text for word in words], console=console))

    def draw(self, path: Path) -> None:
        """Write the sound (.wav), or a picture of its frames over what was read meanwhile (.png, .svg, .pdf)."""
        path = Path(path)
        if not self.text:
            return
        if path.suffix == ".wav":
            with replace_file(path) as draft:
                draft.write_bytes(encode_wav(self.samples, self.rate))
            return
        heatmap.check_ending(path)
        sound.to_file(
            self.weight_LS.T,
            path,
            words=self.pieces,
            frames_SF=self.frames_TF,
            hop=self.voice.mel.hop,
            title=self.text,
        )


def boundary_errors(found: list[tuple[float, float] | None], true: Times) -> list[float]:
    """Return how far starts and ends of words are from the true ones, in seconds.

    A word that no step reads most has no place, and is as far off as it is long.
    """
    errors = []
    for seen, (start, end) in zip(found, true, strict=True):
        errors += [end - start] * 2 if seen is None else [abs(seen[0] - start), abs(seen[1] - end)]
    return errors
