"""Pairs of texts from files: line-aligned (plain or .gz), TSV or JSONL; checked strictly, with file and line."""

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
    """Where pairs come from: two line-aligned files, or one TSV (`.tsv`) or JSONL (`.jsonl`) file with both sides.

    A path may be a folder or a glob: its files are read in the order of their names, as one. The name is for messages.
    """

    source: str
    target: str | None = None
    name: str = ""

    def pairs(self) -> Iterator[Pair]:
        """Every pair in order; blank sides are kept as empty strings. A corpus without a line is a mistake."""
        self.files()  # they are there
        found = self._pairs()
        first = next(found, None)
        if first is None:
            raise UserError(f"{_names(self.sides()[0])}: empty; there must be at least one line")
        yield first
        yield from found

    def files(self) -> list[Path]:
        """All files it reads, in order."""
        if self.target is not None and kind_of(Path(self.source)) in (".tsv", ".jsonl"):
            raise UserError(f"{self.source}: it holds both sides, so there must be no target ({self.target} given)")
        return [path for side in self.sides() for path in side]

    def sides(self) -> list[list[Path]]:
        """The files of the source and of the target, or those that hold both."""
        patterns = {"source": self.source} if self.target is None else {"source": self.source, "target": self.target}
        return [find_files(f"{self.name}.{side}".lstrip("."), pattern) for side, pattern in patterns.items()]

    def place(self, row: int, side: int) -> str:
        """Where a side (0 source, 1 target) of a pair stands, as file:line."""
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
    """The files that a path, folder or glob stands for."""
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
    """The cleaned lines of a UTF-8 file, plain or gzip, whatever its line ends and byte order mark."""
    return map(clean, read_raw_lines(path))


def decode_clean_lines(name: Path | str, stream: Iterable[bytes]) -> Iterator[str]:
    """Cleaned lines of a stream of UTF-8 bytes; the name is for messages."""
    return map(clean, decode_lines(name, stream))


def clean(text: str) -> str:
    """One space for any run of Unicode spaces, none at the ends, no byte order mark; composed characters (NFC)."""
    sound = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate is no character
    return " ".join(unicodedata.normalize("NFC", sound.replace("\ufeff", "")).split())


def read_raw_lines(path: Path) -> Iterator[str]:
    """Only a line feed ends a line: other characters that break one (U+2028, U+0085) would misalign two files."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            yield from decode_lines(path, stream)
    except FileNotFoundError:
        raise UserError(f"there is no file at {path}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file ({error})") from None


def decode_lines(name: Path | str, stream: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream of UTF-8 bytes as they stand."""
    for number, raw in enumerate(stream, 1):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"byte {error.start + 1} of the line: {error.reason}"
            raise UserError(f"{name}:{number}: not UTF-8 ({where})") from None


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


def kind_of(path: Path) -> str:
    """The ending that says what a file holds, with .gz taken off."""
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def _both_sides(path: Path) -> Iterator[Pair]:
    kind = kind_of(path)
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
            raise UserError(f"{path}:{number}: {count}; there must be two, source and target, with a tab between")
        yield Pair(clean(fields[0]), clean(fields[1]))


def _jsonl(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_raw_lines(path), 1):
        try:
            row = json.loads(line.lstrip("\ufeff"))
            source, target = row["source"], row["target"]
        except (ValueError, KeyError, TypeError, RecursionError):
            wanted = '{"source": "...", "target": "..."}'
            raise UserError(f"{path}:{number}: not an object like {wanted}") from None
        if not (isinstance(source, str) and isinstance(target, str)):
            raise UserError(f"{path}:{number}: source and target must be strings")
        if LONE_SURROGATE.search(source + target):
            raise UserError(f"{path}:{number}: half a character (a lone surrogate such as \\ud800)")
        yield Pair(clean(source), clean(target))
