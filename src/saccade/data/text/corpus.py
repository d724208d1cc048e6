"""Reads pairs of texts from files, plain or gzip: line-aligned, TSV, CSV or JSONL. Errors name file and line."""

from __future__ import annotations

import gzip
import itertools
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, final

from saccade.data.held_out import hash_key
from saccade.data.text.headers import is_header
from saccade.data.text.tables import Column, TableRow, count_columns, file_kind, has_columns, read_rows
from saccade.errors import UserError

NAMES = ("source", "target")  # of columns, where nothing else is said
OTHER_KINDS = {  # how files begin that are no text
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"\x1f\x8b": "gzip, but its name doesn't end in .gz",
    b"PK\x03\x04": "a zip archive (as .xlsx and .docx are)",
    b"%PDF-": "PDF",
    b"PAR1\x15": "Parquet",
    b"BZh91AY": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
}
Side = Column | tuple[Column, ...]
NESTED = "translation"  # a key whose object has the texts by language


class Pair(NamedTuple):
    """A source text and its target, cleaned."""

    source: str
    target: str


def header_error(place: str, first: Pair, hint: str = "") -> UserError:
    """Return the error for a first pair that is the names of its columns, with what else helps."""
    said = f"{first.source!r} and {first.target!r} look like a header, not like a pair"
    return UserError(f"{place}: {said}; remove the line{hint}")


def _name_columns(first: Pair) -> str:
    return f", or give data.columns: {{source: {first.source}, target: {first.target}}}"


@final
@dataclass(frozen=True)
class PairColumns:
    """The columns of a file that hold the sides of a pair.

    If they are not `given`, they are called source and target, or by the codes of the `languages`; a TSV or CSV file
    without these names in its first line has no header, and two columns. Several columns of a side are joined by
    spaces.
    """

    given: tuple[Side, Side] | None = None
    languages: tuple[str, str] | None = None

    def choose(self, place: str, names: Sequence[str], *, needs_target: bool) -> Mapping[str, Column]:
        """Return the columns of a TSV or CSV file, from the fields of its first line."""
        if self.given is not None:
            return self._name(self.given)
        for source, target in filter(None, (NAMES, self.languages)):
            if source in names and (target in names or (source == "source" and not needs_target)):
                return self._name((source, target))
        if len(names) != 2 and (needs_target or len(names) != 1):
            wanted = "there must be two, source and target, or a header with names for data.columns"
            there = f" ({', '.join(name[:20] for name in names)})" if 2 < len(names) < 10 else ""
            raise UserError(f"{place}: the line has {count_columns(len(names))}{there}; {wanted}")
        return self._name((0, 1))

    def choose_keys(self, place: str, keys: Sequence[str]) -> Mapping[str, Column]:
        """Return the keys of a JSONL file, from those of its first object."""
        del place
        for sides in filter(None, [self.given] if self.given is not None else [NAMES, self.languages]):
            for within in ("", f"{NESTED}."):
                columns = self._name(sides, within)
                if columns["source"] in keys:
                    return columns
        return self._name(self.given or NAMES)

    def _name(self, sides: tuple[Side, Side], within: str = "") -> dict[str, Column]:
        """Return the columns by what they hold: `source`, and behind it `source.1`; names may be those of an object."""
        return {
            f"{name}.{place}" if place else name: column if isinstance(column, int) else within + column
            for name, side in zip(NAMES, sides, strict=True)
            for place, column in enumerate(_columns(side))
        }

    def optional(self, *, needs_target: bool) -> tuple[str, ...]:
        """Return what lines may lack."""
        names = self._name(self.given or NAMES)
        return () if needs_target else tuple(name for name in names if name.startswith("target"))


BY_NAME = PairColumns()


@final
@dataclass(frozen=True)
class PartOfPairs:
    """The pairs that are held out by the hash of their source, or the others. A pair with a blank side stays."""

    limit: int
    is_held_out: bool

    def __call__(self, pair: Pair) -> bool:
        return self.is_held_out == ("" not in pair and hash_key(pair.source) < self.limit)


@final
@dataclass(frozen=True)
class Corpus:
    """A source of pairs: two line-aligned files, or one TSV, CSV or JSONL file with both sides.

    A path may be a folder or a glob: its files are read in the order of their names, as one. Messages use the name.
    """

    source: str
    target: str | None = None
    name: str = ""
    columns: PairColumns = BY_NAME
    part: PartOfPairs | None = None  # None: all pairs

    def pairs(self) -> Iterator[Pair]:
        """Yield its pairs in order; a blank side is an empty string. Files without a line raise a UserError."""
        self.files()  # raises if one is missing
        found = self._pairs()
        first = next(found, None)
        if first is None:
            raise UserError(f"{_names(self.sides()[0])}: it is empty; there must be at least one line")
        if is_header(first) and file_kind(self.sides()[0][0]) != ".jsonl":
            hint = _name_columns(first) if self.target is None else " from both files"
            raise header_error(replace(self, part=None).place(0, 0), first, hint)
        yield from filter(self.part, itertools.chain([first], found)) if self.part else itertools.chain([first], found)

    def files(self) -> list[Path]:
        """Return all files it reads, in order."""
        if self.target is not None and has_columns(Path(self.source)):
            given = f"{self.target} given; {f'{self.name}.target'.lstrip('.')}=null takes it away"
            raise UserError(f"{self.source}: it holds both sides, so there must be no target ({given})")
        return [path for side in self.sides() for path in side]

    def sides(self) -> list[list[Path]]:
        """Return the files of the source and of the target, or those that hold both."""
        patterns = {"source": self.source} if self.target is None else {"source": self.source, "target": self.target}
        return [find_files(f"{self.name}.{side}".lstrip("."), pattern) for side, pattern in patterns.items()]

    def place(self, row: int, side: int) -> str:
        """Return where a side (0 source, 1 target) of a pair stands, as file:line."""
        if self.part is not None:
            own = (number for number, pair in enumerate(self._pairs()) if self.part(pair))
            row = next(itertools.islice(own, row, None))
        lines = (
            (path, number)
            for path in self.sides()[side if self.target is not None else 0]
            for number in self._line_numbers(path)
        )
        path, number = next(itertools.islice(lines, row, None))
        return f"{path}:{number}"

    def _line_numbers(self, path: Path) -> Iterator[int]:
        """Yield the line on which each row of a file begins."""
        if self.target is None:
            return (row.line for row in read_table(path, self.columns))
        return (number for number, _ in enumerate(read_raw_lines(path), 1))

    def _pairs(self) -> Iterator[Pair]:
        sides = self.sides()
        if len(sides) == 2:
            return _zip_lines(*sides)
        rows = (row for path in sides[0] for row in read_table(path, self.columns))
        return (Pair(clean(row.texts.get("source", "")), clean(row.texts.get("target", ""))) for row in rows)


def _columns(side: Side) -> tuple[Column, ...]:
    return side if isinstance(side, tuple) else (side,)


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
    except IsADirectoryError:
        raise UserError(f"{path}: this is a folder; allowed: a file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: this is not a complete gzip file ({error})") from None


def decode_lines(name: Path | str, stream: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a stream of UTF-8 bytes unchanged; messages use the name."""
    for number, raw in enumerate(stream, 1):
        if number == 1 and (kind := next((OTHER_KINDS[sign] for sign in OTHER_KINDS if raw.startswith(sign)), None)):
            raise UserError(f"{name}: this is {kind}; allowed: text in UTF-8, plain or gzip (.gz)")
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


def read_table(path: Path, columns: PairColumns, *, needs_target: bool = True) -> Iterator[TableRow]:
    """Yield the sides of the pairs in a file with columns; a blank line has none."""
    if not has_columns(path):
        wanted = "one file with both sides must end in .tsv, .csv or .jsonl (or name a target file too)"
        raise UserError(f"{path}: {wanted}")
    choose = columns.choose_keys if file_kind(path) == ".jsonl" else partial(columns.choose, needs_target=needs_target)
    rows = read_rows(path, read_raw_lines(path), choose, optional=columns.optional(needs_target=needs_target))
    return map(_join, rows) if any(isinstance(side, tuple) for side in columns.given or ()) else rows


def _join(row: TableRow) -> TableRow:
    """Return a row whose further columns stand behind the first one of their side."""
    texts = ((name, [text for what, text in row.texts.items() if what.split(".")[0] == name]) for name in NAMES)
    return TableRow(row.line, {name: " ".join(parts) for name, parts in texts if parts})


def read_side(path: Path, columns: PairColumns, side: Literal["source", "target"] = "source") -> Iterator[str]:
    """Yield one side of a file's pairs, cleaned: of a file with columns that column, as in training; else its lines.

    There need not be a target for every source.
    """
    if not has_columns(path):
        return read_lines(path)
    rows = read_table(path, columns, needs_target=side == "target")
    return (_side_of(path, row, side) for row in rows)


def _side_of(path: Path, row: TableRow, side: Literal["source", "target"]) -> str:
    """Return one side of a row, cleaned; a first line of names is refused, as in training."""
    source, target = (clean(row.texts.get(name, "")) for name in NAMES)
    if row.line == 1 and is_header(pair := Pair(source, target)) and file_kind(path) != ".jsonl":
        raise header_error(f"{path}:1", pair, _name_columns(pair))
    return source if side == "source" else target


def place_of_row(path: Path, columns: PairColumns, row: int) -> str:
    """Return where a row of a file stands, as file:line."""
    if not has_columns(path):
        return f"{path}:{row + 1}"
    rows = read_table(path, columns, needs_target=False)
    return f"{path}:{next(itertools.islice(rows, row, None)).line}"
