"""Stores the frames of many sound files on disk: each file once, even if it is part of many sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.sound.mel import ENDINGS, Mel, join_frames, parse_source, read_frames
from saccade.data.store import RaggedArray, RaggedWriter, content_hash, make_once
from saccade.errors import UserError

FORMAT = 1  # raise it, and every store is made again


@final
@dataclass(frozen=True)
class Recordings:
    """Frames of files. A source is a row of references to them: a file's number, or -n for n silent frames."""

    mel: Mel
    frames: RaggedArray
    number_of: dict[str, int]  # by the names that sources use
    key: str  # a hash of everything it was made from

    def encode(self, text: str) -> list[int]:
        """Return the references of a source, without silences shorter than half a frame."""
        named = (
            self.number_of[part] if isinstance(part, str) else -num_silent_frames(part, self.mel) or None
            for part in parse_source(text)
        )
        return [reference for reference in named if reference is not None]

    def length(self, references: Iterable[int]) -> int:
        """Return the number of frames of a source."""
        return sum(len(self.frames[number]) if number >= 0 else -number for number in references)

    def all_lengths(self, sources: RaggedArray) -> NDArray[np.int64]:
        """Return the number of frames of every source of a store."""
        each = np.where(sources.steps < 0, -sources.steps, self.frames.lengths[np.maximum(sources.steps, 0)])
        return np.diff(np.concatenate([[0], np.cumsum(each)])[sources.offsets])

    def load(self, references: Iterable[int]) -> NDArray[np.float32]:
        """Return a source's frames [S, F], joined and normalised."""
        pieces = [self.frames[number] if number >= 0 else -int(number) for number in references]
        return join_frames(pieces, self.mel.num_mels)


def num_silent_frames(seconds: float, mel: Mel) -> int:
    """Return the number of frames of a silence."""
    return round(seconds / mel.hop)


def prepare_recordings(root: Path, files: Mapping[str, Path], mel: Mel) -> Recordings:
    """Return the frames of these files under `root`, made now or found; one file at a time is in memory."""
    key = content_hash(files.values(), {"names": list(files), "mel": mel._asdict(), "frames": FORMAT})

    def write(draft: Path) -> None:
        with RaggedWriter(draft, "frames", np.float16) as writer:
            for path in files.values():
                writer.add(read_frames(path, mel))
        (draft / "meta.json").write_text(json.dumps({"num_files": len(files)}), "utf-8")

    frames = RaggedArray.open(make_once(root, key, write), "frames", np.float16, mel.num_mels)
    return Recordings(mel, frames, {name: number for number, name in enumerate(files)}, key)


def find_named_files(texts: Iterable[str], folder: Path, place: Callable[[int], str]) -> dict[str, Path]:
    """Return every file that the sources name, once, in order; `place` says where a row stands, for messages."""
    found: dict[str, Path] = {}
    for row, text in enumerate(texts):
        try:
            names = [part for part in parse_source(text) if isinstance(part, str) and part not in found]
        except UserError as mistake:
            raise UserError(f"{place(row)}: {mistake}") from None
        for name in names:
            found[name] = folder / name
            if not found[name].is_file():
                raise UserError(f"{place(row)}: there is no file at {found[name]}")
    return found


def pad_frames(sources: Sequence[NDArray[np.float32]]) -> tuple[Tensor, Tensor]:
    """Pad sources with zeros into one batch [B, S, F]; return it and their lengths."""
    longest = max(len(source) for source in sources)
    table: NDArray[Any] = np.zeros((len(sources), longest, sources[0].shape[1]), np.float32)
    for row, source in enumerate(sources):
        table[row, : len(source)] = source
    return torch.from_numpy(table), torch.tensor([len(source) for source in sources])


@final
@dataclass(frozen=True)
class Sounds:
    """Turns names of files, or frames as `read_frames` makes them, into frames, as a tokenizer turns text into ids."""

    mel: Mel
    frames_a_step: int = 4  # a step is what attention can point to
    stored: Recordings | None = None  # files that need not be read again

    def encode(self, text: str | NDArray[np.float16]) -> NDArray[np.float32]:
        """Return a source's frames [S, F], joined and normalised."""
        if not isinstance(text, str):
            return join_frames([text], self.mel.num_mels)
        pieces = [
            self._frames(part) if isinstance(part, str) else num_silent_frames(part, self.mel)
            for part in parse_source(text)
        ]
        return join_frames(pieces, self.mel.num_mels) if pieces else np.zeros((0, self.mel.num_mels), np.float32)

    def _frames(self, name: str) -> NDArray[np.float16]:
        if self.stored is not None and name in self.stored.number_of:
            return self.stored.frames[self.stored.number_of[name]]
        return read_frames(Path(name), self.mel)

    def pieces(self, frames_SF: NDArray[np.float32]) -> list[str]:
        """Return the second at which each step begins."""
        steps = range(0, len(frames_SF), self.frames_a_step)
        return [f"{step * self.mel.hop:.2f}" for step in steps]


def rebase_paths(texts: Iterable[str], folder: Path, place: Callable[[int], str]) -> Iterator[str]:
    """Yield sources with their paths relative to `folder` made relative to here; `place` is for messages."""
    for row, text in enumerate(texts):
        try:
            found = parse_source(text)
        except UserError as mistake:
            raise UserError(f"{place(row)}: {mistake}") from None
        if missing := [part for part in found if isinstance(part, str) and not (folder / part).is_file()]:
            raise UserError(f"{place(row)}: there is no file at {folder / missing[0]}")
        yield " ".join(str(folder / part) if isinstance(part, str) else f"{part:g}" for part in found)


def find_sounds(path: Path) -> list[str] | None:
    """Return a sound file, or the sound files of a folder by path, as sources; None for another kind of file."""
    if not path.is_dir():
        return [str(path)] if path.suffix.lower() in ENDINGS else None
    found = sorted(str(file) for file in path.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
    if not found:
        raise UserError(f"{path}: there is no sound in it (files that end in {', '.join(ENDINGS)})")
    return found
