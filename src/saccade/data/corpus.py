"""Pairs of texts from files: line-aligned (plain or .gz), TSV or JSONL; checked strictly, with file and line."""

from __future__ import annotations

import gzip
import itertools
import json
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, final

from saccade.data.mistakes import Mistake


class Pair(NamedTuple):
    """A source text and its target, cleaned."""

    source: str
    target: str


@final
@dataclass(frozen=True)
class Corpus:
    """Where pairs come from: two line-aligned files, or one TSV (`.tsv`) or JSONL (`.jsonl`) file with both sides.

    A path may be a folder or a glob: its files are read in the order of their names, as one.
    """

    source: str
    target: str | None = None

    def pairs(self) -> Iterator[Pair]:
        """Every pair in order; blank sides are kept as empty strings."""
        if self.target is not None:
            return _aligned(shards("source", self.source), shards("target", self.target))
        return itertools.chain.from_iterable(_both_sides(path) for path in shards("source", self.source))

    def files(self) -> list[Path]:
        """All files it reads, in order."""
        found = shards("source", self.source)
        return found if self.target is None else found + shards("target", self.target)


def shards(field: str, pattern: str) -> list[Path]:
    """The files that a path, folder or glob stands for."""
    path = Path(pattern)
    if path.is_dir():
        found = sorted(child for child in path.iterdir() if child.is_file() and not child.name.startswith("."))
    elif any(sign in pattern for sign in "*?["):
        root = Path(path.anchor) if path.is_absolute() else Path()
        found = sorted(root.glob(str(path.relative_to(path.anchor)) if path.is_absolute() else pattern))
    else:
        found = [path] if path.is_file() else []
    if not found:
        raise Mistake(f"{field}: there is no file at {pattern}")
    return found


def read_lines(path: Path) -> Iterator[str]:
    """The cleaned lines of a UTF-8 file, plain or gzip, whatever its line ends and byte order mark."""
    try:
        with _opened(path) as stream:
            yield from decoded_lines(path, stream)
    except FileNotFoundError:
        raise Mistake(f"there is no file at {path}") from None
    except (gzip.BadGzipFile, EOFError) as error:
        raise Mistake(f"{path}: not a whole gzip file ({error})") from None


def decoded_lines(name: Path | str, stream: Iterable[bytes]) -> Iterator[str]:
    """Cleaned lines of a stream of UTF-8 bytes; the name is for messages."""
    for number, raw in enumerate(stream, 1):
        yield clean(_decoded(name, number, raw))


def clean(text: str) -> str:
    """One space for any run of Unicode spaces, none at the ends, no byte order mark; composed characters (NFC)."""
    return " ".join(unicodedata.normalize("NFC", text.replace("\ufeff", "")).split())


def _opened(path: Path) -> BinaryIO:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _decoded(path: Path | str, number: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Mistake(f"{path}:{number}: not UTF-8 (byte {error.start + 1} of the line: {error.reason})") from None


def _aligned(sources: list[Path], targets: list[Path]) -> Iterator[Pair]:
    missing = object()
    streams = (_all_lines(sources), _all_lines(targets))
    for number, (source, target) in enumerate(itertools.zip_longest(*streams, fillvalue=missing), 1):
        if source is missing or target is missing:
            short, long = (sources, targets) if source is missing else (targets, sources)
            names = f"{_names(short)} ends after {number - 1:,} lines, {_names(long)} goes on"
            raise Mistake(f"{names}: line-aligned files must have the same number of lines")
        yield Pair(str(source), str(target))


def _all_lines(paths: Iterable[Path]) -> Iterator[str]:
    return itertools.chain.from_iterable(read_lines(path) for path in paths)


def _names(paths: list[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def _both_sides(path: Path) -> Iterator[Pair]:
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind == ".jsonl":
        return _jsonl(path)
    if kind == ".tsv":
        return _tsv(path)
    raise Mistake(f"{path}: one file with both sides must end in .tsv or .jsonl (or name a target file too)")


def _tsv(path: Path) -> Iterator[Pair]:
    with _opened(path) as stream:
        for number, raw in enumerate(stream, 1):
            fields = _decoded(path, number, raw).rstrip("\r\n").split("\t")
            if len(fields) != 2:
                raise Mistake(f"{path}:{number}: {len(fields)} columns; there must be two, source and target")
            yield Pair(clean(fields[0]), clean(fields[1]))


def _jsonl(path: Path) -> Iterator[Pair]:
    with _opened(path) as stream:
        for number, raw in enumerate(stream, 1):
            line = _decoded(path, number, raw)
            try:
                row = json.loads(line)
                source, target = row["source"], row["target"]
            except (ValueError, KeyError, TypeError):
                wanted = '{"source": "...", "target": "..."}'
                raise Mistake(f"{path}:{number}: not an object like {wanted}") from None
            if not (isinstance(source, str) and isinstance(target, str)):
                raise Mistake(f"{path}:{number}: source and target must be strings")
            yield Pair(clean(source), clean(target))
