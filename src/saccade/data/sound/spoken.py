"""Lists of sounds with what is said in them, and when: `sound TAB text`, or `sound TAB text TAB times`.

The sound is a line of files and silences, as sound to text reads it. Times are the start and the end of each word in
seconds, `0.00 0.31 0.31 0.62`; where a sound has as many files as words, they follow from the files. The first line may
name the columns.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.sound.mel import parse_source
from saccade.data.sound.recordings import Recordings, find_named_files, num_silent_frames
from saccade.data.text.corpus import clean, read_raw_lines
from saccade.data.text.tokenizer import Tokenizer
from saccade.errors import UserError

HEADER = ["sound", "text", "times"]  # may be the first line
Times = tuple[tuple[float, float], ...]


class SpokenLine(NamedTuple):
    """A sound as its list names it, what is said, and the start and end of each word, if they are known."""

    sound: str
    text: str
    times: Times | None


def read_spoken(path: Path, voice: str | None = None) -> list[SpokenLine]:
    """Read a list; the first group of the pattern `voice` in a sound's name goes before its text: `theo: one two`."""
    found = []
    for number, line in enumerate(read_raw_lines(path), 1):
        parts = [clean(part) for part in line.split("\t")]
        if number == 1 and parts in (HEADER, HEADER[:2]):
            continue
        if len(parts) not in (2, 3) or not all(parts[:2]):
            allowed = "allowed: sound TAB text, or sound TAB text TAB times"
            raise UserError(f"{path}, line {number}: {line.strip()[:60]!r} given; {allowed}")
        text, times = parts[1], None
        if len(parts) == 3:
            times = _parse_times(parts[2], len(text.split()), f"{path}, line {number}")
        if voice is not None:
            match = re.search(voice, parts[0])
            if match is None or not match.groups():
                raise UserError(f"{path}, line {number}: data.voice {voice!r} finds nothing in {parts[0][:60]!r}")
            text = f"{match[1]}: {text}"
        found.append(SpokenLine(parts[0], text, times))
    if not found:
        raise UserError(f"{path}: it is empty")
    return found


def _parse_times(text: str, num_words: int, place: str) -> Times:
    try:
        values = [float(value) for value in text.split()]
    except ValueError:
        raise UserError(f"{place}: times {text[:60]!r} given; they must be numbers, in seconds") from None
    if len(values) != 2 * num_words or values != sorted(values) or values[:1] < [0.0]:
        wanted = f"a start and an end for each of {num_words} words, in order"
        raise UserError(f"{place}: times {text[:60]!r} given; they must be {wanted}")
    return tuple(zip(values[::2], values[1::2], strict=True))


def find_sounds_of(path: Path, lines: Sequence[SpokenLine]) -> dict[str, Path]:
    """Find every file that a list names, by its name there."""
    return find_named_files((line.sound for line in lines), path.parent, lambda row: f"{path}, sound {row + 1}")


class SpeechBatch(NamedTuple):
    """Characters [B, S], frames [B, T, F], padded with silence to whole steps, and how many of both are real."""

    ids_BS: Tensor
    length_B: Tensor
    frame_BTF: Tensor
    num_frames_B: Tensor

    def to(self, device: torch.device) -> SpeechBatch:
        return SpeechBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @property
    def num_items(self) -> int:
        return int(self.num_frames_B.sum())


@final
@dataclass(frozen=True)
class SpeechSet:
    """The lines of a list with their frames. `frames_a_step` rounds their number up."""

    lines: Sequence[SpokenLine]
    recordings: Recordings
    tokenizer: Tokenizer
    frames_a_step: int
    tail: int = 6  # frames of silence behind each, which teach it to end

    def __len__(self) -> int:
        return len(self.lines)

    def frames(self, row: int) -> NDArray[np.float32]:
        """Return a line's frames [T, F], normalised, silence behind them."""
        references = self.recordings.encode(self.lines[row].sound)
        return self.recordings.load([*references, -self.tail])

    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of frames and of characters of each line."""
        frames = [self.recordings.length(self.recordings.encode(line.sound)) + self.tail for line in self.lines]
        return np.array(frames), np.array([len(self.tokenizer.encode(line.text)) for line in self.lines])

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> SpeechBatch:
        frames = [torch.from_numpy(self.frames(int(row))) for row in rows]
        ids_BS, length_B = pad_ids([self.tokenizer.encode(self.lines[int(row)].text) for row in rows])
        longest = max(map(len, frames))
        longest += -longest % self.frames_a_step
        padded = torch.stack([torch.cat([own, own.min().expand(longest - len(own), own.shape[1])]) for own in frames])
        return SpeechBatch(ids_BS, length_B, padded, torch.tensor([len(own) for own in frames]))

    def times(self, row: int) -> Times | None:
        """Return the start and end of each word of a line, if they are known."""
        line = self.lines[row]
        if line.times is not None:
            return line.times
        ends, at = [], 0.0
        for part in parse_source(line.sound):
            if isinstance(part, str):
                length = len(self.recordings.frames[self.recordings.number_of[part]]) * self.recordings.mel.hop
                ends.append((at, at + length))
                at += length
            else:
                at += num_silent_frames(part, self.recordings.mel) * self.recordings.mel.hop
        return tuple(ends) if len(ends) == len(words_of(line.text)) else None


def pad_ids(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad rows of ids with 0 on the right; return them [B, S], and their lengths [B]."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows]), torch.tensor([*map(len, rows)])


class WordSpan(NamedTuple):
    """A word of a text, and its first character and the one behind its last."""

    text: str
    first: int
    last: int


def words_of(text: str) -> list[WordSpan]:
    """Return the words that are said: not the name of a voice before them."""
    start = len(text) - len(text.split(": ", 1)[-1])
    return [
        WordSpan(found[0], found.start(), found.end()) for found in re.finditer(r"\S+", text) if found.start() >= start
    ]


def word_times(weight_LS: Tensor, words: Sequence[WordSpan], seconds: float) -> list[tuple[float, float] | None]:
    """Return when each word is read: from the first step whose greatest weight is on it to the end of the last one.

    A step takes `seconds`; None: no step reads it.
    """
    read_L = weight_LS.argmax(-1)
    time_L = [round(step * seconds, 6) for step in range(len(read_L) + 1)]  # 0.35, not 0.35000000000000003
    found: list[tuple[float, float] | None] = []
    for word in words:
        steps = ((read_L >= word.first) & (read_L < word.last)).nonzero().flatten()
        found.append((time_L[steps[0]], time_L[steps[-1] + 1]) if len(steps) else None)
    return found


def is_monotone(weight_LS: Tensor) -> bool:
    """Return whether no step reads a character before the one that was read last."""
    return all(later >= earlier for earlier, later in itertools.pairwise(weight_LS.argmax(-1).tolist()))
