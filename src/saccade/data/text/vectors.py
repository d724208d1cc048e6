"""Reads word vectors from text files: GloVe, word2vec and fastText, plain or gzip, with or without a header line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.data.text.corpus import clean, read_raw_lines
from saccade.errors import UserError


class Vectors(NamedTuple):
    """Words in the order of their file, each once, and their vectors [V, D]. A repeated word has its first vector."""

    words: list[str]
    table_VD: NDArray[np.float32]
    num_repeated: int


class _Header(NamedTuple):
    num_vectors: int
    width: int


def read_vectors(path: Path, *, most: int | None = None) -> Vectors:
    """Read the vectors of a file, or its first `most`; files usually begin with the commonest words."""
    found: dict[str, NDArray[np.float32]] = {}
    repeated = 0
    for word, vector in itertools.islice(_rows(path), most):
        repeated += word in found
        found.setdefault(word, vector)
    return Vectors(list(found), np.stack(list(found.values())), repeated)


def _rows(path: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    header: _Header | None = None
    width = count = 0
    for number, line in enumerate(read_raw_lines(path), 1):
        line = line.lstrip("\ufeff").replace("\t", " ").rstrip("\r\n ")
        if number == 1 and (header := _header(line)):
            width = header.width
            continue
        width = width or line.count(" ")
        yield _row(f"{path}:{number}", line, width)
        count += 1
    if not count:
        raise UserError(f"{path}: there is no vector in it; there must be lines of a word and its numbers")
    if header and count != header.num_vectors:
        raise UserError(f"{path}: it has {count:,} vectors, but its first line says {header.num_vectors:,}")


def _header(line: str) -> _Header | None:
    """Return the numbers of a first line `count width`, as word2vec and fastText write it, or None."""
    fields = line.split(" ")
    is_header = len(fields) == 2 and all(field.isdecimal() and field.isascii() for field in fields)
    return _Header(*map(int, fields)) if is_header else None


def _row(place: str, line: str, width: int) -> tuple[str, NDArray[np.float32]]:
    """Split a line into word and vector. Words may hold spaces (GloVe 840B has some), so numbers count from the end."""
    word, *numbers = line.rsplit(" ", width) if width else [line]
    if not width or len(numbers) != width or not word:
        wanted = f"there must be {width}, as on the first line" if width else "there must be some behind the word"
        raise UserError(f"{place}: the line has {max(0, line.count(' '))} numbers; {wanted}")
    try:
        vector = np.array(numbers, np.float32)
    except ValueError:
        wrong = next(text for text in numbers if not _is_number(text))
        raise UserError(f"{place}: {wrong[:40]!r} is not a number; there must be {width} behind the word") from None
    if not np.isfinite(vector).all():
        raise UserError(f"{place}: a number is infinite, too large or not a number")
    return clean(word), vector


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
