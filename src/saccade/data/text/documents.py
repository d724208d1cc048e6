"""Documents of text files: a line each, a paragraph each, or a file each."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from saccade.data.text.corpus import clean, read_raw_lines
from saccade.errors import UserError

Split = Literal["lines", "paragraphs", "files"]


def read_documents(paths: Sequence[Path], split: Split) -> Iterator[str]:
    """Yield the documents of some files, without blank ones. Lines are cleaned; other documents keep their spaces."""
    for path in paths:
        if split == "lines":
            yield from filter(None, map(clean, read_raw_lines(path)))
        else:
            yield from _read_blocks(path, split)


def tidy(text: str) -> str:
    """Write line feeds for other line ends, no byte order mark, and composed characters; all spaces stay."""
    sound = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate is no character
    return unicodedata.normalize("NFC", sound.replace("\ufeff", "").replace("\r\n", "\n"))


def _read_blocks(path: Path, split: Split) -> Iterator[str]:
    """Yield a file's paragraphs, which blank lines part, or all of it."""
    block: list[str] = []
    for line in map(tidy, read_raw_lines(path)):
        if split == "paragraphs" and not line.strip():
            yield from _join(block)
            block = []
        else:
            block.append(line)
    yield from _join(block)


def _join(block: Sequence[str]) -> Iterator[str]:
    text = "".join(block)
    if text.strip():
        yield text


def split_end(documents: Sequence[str], *, share: float | None, count: int | None) -> tuple[list[str], list[str]]:
    """Cut the last documents off, a share or a count; of a lone document, its last lines."""
    units = list(documents) if len(documents) > 1 else "".join(documents).splitlines(keepends=True)
    num_held = count if count is not None else max(1, round((share or 0) * len(units)))
    if num_held >= len(units):
        raise UserError(
            f"data.valid: {num_held:,} given; data.train has {len(units):,}, and some must be left to train on"
        )
    parts = units[:-num_held], units[-num_held:]
    if len(documents) > 1:
        return parts
    return ["".join(parts[0])], ["".join(parts[1])]
