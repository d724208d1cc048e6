"""Reads clips: an animated GIF, PNG or WebP, or a folder of frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from saccade.data.pictures.images import ENDINGS, Pixels, pixels_of, read_picture
from saccade.data.text.corpus import read_raw_lines
from saccade.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

ANIMATED = (".gif", ".webp", ".apng")
GIF_END = b";"
COLUMNS = 4


class WordFrames(NamedTuple):
    """A word of a caption, by its number from 0 on, and the first and the last frame in which one sees it happen."""

    word: int
    first: int
    last: int


class ClipSize(NamedTuple):
    """The size of clips: the side that frames are scaled to, and the most frames."""

    side: int
    frames: int


def read_clip(path: Path, size: ClipSize) -> Pixels:
    """Read the frames [F, C, Y, X] of a file or of a folder."""
    from PIL import Image

    if path.is_dir():
        return _read_frames(path, size)
    try:
        with Image.open(path) as opened:
            if is_cut_off(opened, path.read_bytes()):
                raise UserError(f"{path}: this is not a complete clip (the file is cut off)")
            return frames_of(opened, str(path), size)
    except FileNotFoundError:
        raise UserError(f"there is no clip at {path}") from None
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise UserError(f"{path}: this is not a complete clip ({' '.join(str(error).split())})") from None


def is_cut_off(opened: Image.Image, content: bytes) -> bool:
    """Return whether the end of a GIF is missing: Pillow would read the frames before it without a word."""
    return opened.format == "GIF" and not content.rstrip(b"\0").endswith(GIF_END)


def frames_of(opened: Image.Image, name: str, size: ClipSize) -> Pixels:
    """Return the frames [F, C, Y, X] of a file that Pillow has opened.

    A frame that is shown n times as long as the shortest counts n times: programs join frames that are the same.
    """
    number = getattr(opened, "n_frames", 1)
    _check_number(number, name, size)
    frames, durations = [], []
    for place in range(number):
        opened.seek(place)
        frames.append(pixels_of(opened, name, resize=size.side))
        durations.append(float(opened.info.get("duration", 0) or 0))
    shortest = min(durations)
    times = [round(duration / shortest) if shortest else 1 for duration in durations]
    _check_number(sum(times), name, size)
    return np.repeat(np.stack(frames), times, axis=0)


def read_clips(path: Path, size: ClipSize) -> Iterator[tuple[str, Pixels]]:
    """Yield names and frames: of a file, of a folder of frames, or of a folder of such files and folders."""
    if not path.is_dir():
        yield str(path), read_clip(path, size)
        return
    children = sorted(child for child in path.iterdir() if not child.name.startswith("."))
    clips = [child for child in children if child.is_dir() or child.suffix.lower() in ANIMATED]
    for one in clips or [path]:
        yield str(one), read_clip(one, size)


def read_spans(path: Path, words_of: dict[str, list[str]]) -> dict[str, list[WordFrames]]:
    """Read when words of captions happen: clip TAB word TAB first frame TAB last frame, all counted from 1.

    `words_of` are the words of the first caption of each clip.
    """
    if not path.is_file():
        raise UserError(f"there is no file at {path}")
    found: dict[str, list[WordFrames]] = {name: [] for name in words_of}
    for number, line in enumerate(read_raw_lines(path), 1):
        name, *rest = line.rstrip("\r\n").split("\t")
        if len(rest) != COLUMNS - 1 or not all(part.isdecimal() and int(part) for part in rest):
            raise UserError(f"{path}:{number}: there must be {COLUMNS} columns: clip TAB word TAB first TAB last")
        word, first, last = (int(part) - 1 for part in rest)
        if name not in words_of:
            raise UserError(f"{path}:{number}: {name} has no caption")
        if word >= len(words_of[name]) or first > last:
            said = f"word {word + 1}, frames {first + 1} to {last + 1}"
            raise UserError(f"{path}:{number}: {said}; the caption has {len(words_of[name])} words, first <= last")
        found[name].append(WordFrames(word, first, last))
    return found


def _read_frames(folder: Path, size: ClipSize) -> Pixels:
    """Read the pictures of a folder, in the order of their names, as frames."""
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in ENDINGS and file.is_file())
    if not files:
        raise UserError(f"{folder}: this clip has no frame (files that end in {', '.join(ENDINGS)})")
    _check_number(len(files), str(folder), size)
    first = _size_of(files[0])
    for file in files:
        if (own := _size_of(file)) != first:
            sizes = f"{own[0]} x {own[1]} pixels at {file} but {first[0]} x {first[1]} at {files[0]}"
            raise UserError(f"{folder}: {sizes}; all frames of a clip must be of one size")
    return np.stack([read_picture(file, resize=size.side) for file in files])


def _size_of(file: Path) -> tuple[int, int]:
    from PIL import Image

    try:
        with Image.open(file) as opened:
            return opened.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{file}: this is not a complete picture ({' '.join(str(error).split())})") from None


def _check_number(number: int, name: str, size: ClipSize) -> None:
    if number > size.frames:
        raise UserError(f"{name}: {number:,} frames; allowed: {size.frames} at most (data.frames)")
