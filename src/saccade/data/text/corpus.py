"""Reads pairs of texts from files: line-aligned (plain or .gz), TSV or JSONL. Errors name file and line."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from saccade.errors import UserError

LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # UTF-8 has none, but JSON can spell one


class Pair(NamedTuple):
    """A source text and its target, cleaned."""

    source: str
    target: str


@final
@dataclass(frozen=True)
class Corpus:
    """A source of pairs: two line-aligned files, or one TSV (`.tsv`) or JSONL (`.jsonl`) file with both sides.

    A path may be a folder or a glob: its files are read in the order of their names, as one. Messages use the name.
    """

    source: str
    target: str | None = None
    name: str = ""

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair in order; a blank side is an empty string. A corpus without a line raises a UserError."""
        self.files()  # raises if one is missing
        found = self._pairs()
        first = next(found, None)
        if first is None:
            raise UserError(f"{_names(self.sides()[0])}: it is empty; there must be at least one line")
        yield first
        yield from found

    def files(self) -> list[Path]:
        """Return all files it reads, in order."""
        if self.target is not None and file_kind(Path(self.source)) in (".tsv", ".jsonl"):
            raise UserError(f"{self.source}: it holds both sides, so there must be no target ({self.target} given)")
        return [path for side in self.sides() for path in side]

    def sides(self) -> list[list[Path]]:
        """Return the files of the source and of the target, or those that hold both."""
        patterns = {"source": self.source} if self.target is None else {"source": self.source, "target": self.target}
        return [find_files(f"{self.name}.{side}".lstrip("."), pattern) for side, pattern in patterns.items()]

    def place(self, row: int, side: int) -> str:
        """Return where a side (0 source, 1 target) of a pair stands, as file:line."""
        *earlier, last = self.sides()[side if self.target is not None else 0]
        for path in earlier:
            count = sum(1 for _ in read_raw_lines(path))
            if row < count:
                return f"{path}:{row + 1}"
            row -= count
        return f"{last}:{row + 1}"

    def _pairs(self) -> Iterator[Pair]:
        sides = self.sides()
        if len(sides) == 2:
            return _zip_lines(*sides)
        return itertools.chain.from_iterable(_both_sides(path) for path in sides[0])


def find_files(field: str, pattern: str) -> list[Path]:
    """Return the files that a path, folder or glob stands for."""
    path = Path(pattern).expanduser()
    if path.is_dir():
        found = sorted(child for child in path.iterdir() if child.is_file() and not child.name.startswith("."))
    elif any(sign in pattern for sign in "*?["):
        root = Path(path.anchor) if path.is_absolute() else Path()
        found = sorted(file for file in root.glob(str(path.relative_to(path.anchor))) if file.is_file())
    else:
        found = [path] if path.is_file() else []
    if not found:
        raise UserError(f"{field}: there is no file at {pattern}")
    return found


def read_lines(path: Path) -> Iterator[str]:
    """Yield the cleaned lines of a UTF-8 file, plain or gzip."""
    return map(clean, read_raw_lines(path))


def decode_clean_lines(name: Path | str, stream: Iterable[bytes]) -> Iterator[str]:
    """Yield cleaned lines of a stream of UTF-8 bytes; messages use the name."""
    return map(clean, decode_lines(name, stream))


def clean(text: str) -> str:
    """Write one space for any run of Unicode spaces, none at the ends, no byte order mark, and composed characters."""
    sound = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate is no character
    return " ".join(unicodedata.normalize("NFC", sound.replace("\ufeff", "")).split())


def read_raw_lines(path: Path) -> Iterator[str]:
    """Yield lines that end with a line feed only: other line breaks (U+2028, U+0085) would misalign two files."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            yield from decode_lines(path, stream)
    except FileNotFoundError:
        raise UserError(f"there is no file at {path}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: this is not a complete gzip file ({error})") from None


def decode_lines(name: Path | str, stream: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a stream of UTF-8 bytes unchanged; messages use the name."""
    for number, raw in enumerate(stream, 1):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"byte {error.start + 1} of the line: {error.reason}"
            raise UserError(f"{name}:{number}: this is not UTF-8 ({where})") from None


def _zip_lines(sources: list[Path], targets: list[Path]) -> Iterator[Pair]:
    missing = object()
    streams = (_all_lines(sources), _all_lines(targets))
    for number, (source, target) in enumerate(itertools.zip_longest(*streams, fillvalue=missing), 1):
        if source is missing or target is missing:
            short, long = (sources, targets) if source is missing else (targets, sources)
            names = f"{_names(short)} ends after {number - 1:,} lines, {_names(long)} goes on"
            raise UserError(f"{names}: line-aligned files must have the same number of lines")
        yield Pair(str(source), str(target))


def _all_lines(paths: Iterable[Path]) -> Iterator[str]:
    return itertools.chain.from_iterable(read_lines(path) for path in paths)


def _names(paths: list[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def file_kind(path: Path) -> str:
    """Return the ending that names a file's format, without .gz."""
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def _both_sides(path: Path) -> Iterator[Pair]:
    kind = file_kind(path)
    if kind == ".jsonl":
        return _jsonl(path)
    if kind == ".tsv":
        return _tsv(path)
    raise UserError(f"{path}: one file with both sides must end in .tsv or .jsonl (or name a target file too)")


def _tsv(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_raw_lines(path), 1):
        fields = line.split("\t")
        if len(fields) != 2:
            count = "1 column" if len(fields) == 1 else f"{len(fields)} columns"
            raise UserError(
                f"{path}:{number}: the line has {count}; there must be two, source and target, with a tab between"
            )
        yield Pair(clean(fields[0]), clean(fields[1]))


def _jsonl(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_raw_lines(path), 1):
        try:
            row = json.loads(line.lstrip("\ufeff"))
            source, target = row["source"], row["target"]
        except (ValueError, KeyError, TypeError, RecursionError):
            wanted = '{"source": "...", "target": "..."}'
            raise UserError(f"{path}:{number}: this is not an object like {wanted}") from None
        if not (isinstance(source, str) and isinstance(target, str)):
            raise UserError(f"{path}:{number}: source and target must be strings")
        if LONE_SURROGATE.search(source + target):
            raise UserError(f"{path}:{number}: it has half a character (a lone surrogate such as \\ud800)")
        yield Pair(clean(source), clean(target))
