"""Reads the columns of TSV, CSV and JSONL files: by the names in their first line (JSONL: by keys), or by positions.

Errors name file and line.
"""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saccade.errors import UserError

TABLES = (".tsv", ".csv", ".jsonl")
BOM = "\ufeff"
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # UTF-8 has none, but JSON can spell one
LONGEST_FIELD = 1 << 24  # characters of a CSV field

Column = str | int  # a name, or a position from 0
Choose = Callable[[str, Sequence[str]], Mapping[str, Column]]
# from the place and the fields of the first line (JSONL: its keys) to the columns, by what they hold
ToText = Callable[[str, str, Any], str]  # from the place, the key and the value in JSON


class TableRow(NamedTuple):
    """The texts of a line by what they hold, as they stand there; none if it is blank."""

    line: int
    texts: dict[str, str]


class _Fields(NamedTuple):
    line: int
    fields: list[str]


def file_kind(path: Path) -> str:
    """Return the ending that names a file's format, in lower case and without .gz."""
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()


def has_columns(path: Path) -> bool:
    """Return whether a file's ending says that it has columns; one JSON value in a whole file is refused."""
    if (kind := file_kind(path)) == ".json":
        raise UserError(f"{path}: JSON in a whole file is not read; allowed: an object a line, in a file named .jsonl")
    return kind in TABLES


def as_text(place: str, key: str, value: Any) -> str:
    """Return a value of JSON as text; only strings and whole numbers are."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(f"{place}: {key!r} is {json.dumps(value)[:40]}; it must be a string or a whole number")
    if LONE_SURROGATE.search(str(value)):
        raise UserError(f"{place}: it has half a character (a lone surrogate such as \\ud800)")
    return str(value)


def read_rows(
    path: Path, lines: Iterable[str], choose: Choose, *, optional: Collection[str] = (), to_text: ToText = as_text
) -> Iterator[TableRow]:
    """Yield the chosen columns of a file's lines; `optional` ones may be missing. A record may span several lines."""
    if file_kind(path) == ".jsonl":
        return _read_jsonl(path, lines, choose, optional, to_text)
    rows = _split_csv(path, lines) if file_kind(path) == ".csv" else _split_tsv(lines)
    return _pick_columns(path, rows, choose, optional)


def count_columns(count: int) -> str:
    """Return a number of columns in words."""
    return "1 column" if count == 1 else f"{count} columns"


def _split_tsv(lines: Iterable[str]) -> Iterator[_Fields]:
    for number, line in enumerate(lines, 1):
        yield _Fields(number, line.lstrip(BOM).rstrip("\r\n").split("\t"))


def _split_csv(path: Path, lines: Iterable[str]) -> Iterator[_Fields]:
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader((line.lstrip(BOM) for line in lines), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield _Fields(number, next(reader))
        except StopIteration:
            return
        except csv.Error as error:
            reason = "a line ends in CR alone" if "new-line character" in str(error) else str(error)
            raise UserError(f"{path}:{number}: this is not CSV ({reason})") from None


def _pick_columns(path: Path, rows: Iterator[_Fields], choose: Choose, optional: Collection[str]) -> Iterator[TableRow]:
    places: dict[str, int] | None = None
    most = 0
    for number, fields in rows:
        place = f"{path}:{number}"
        if not any(field.strip() for field in fields):
            yield TableRow(number, {})
            continue
        if places is None:
            names = [unicodedata.normalize("NFC", " ".join(field.split())) for field in fields]
            columns = choose(place, names)
            places = _find_columns(place, columns, names, optional)
            most = max(len(fields), *(column + 1 for column in places.values()))
            if any(isinstance(column, str) for column in columns.values()):
                continue
        if len(fields) > most:
            quotes = " (a comma inside a text needs quotes around it)" if file_kind(path) == ".csv" else ""
            raise UserError(f"{place}: the line has {count_columns(len(fields))}, more than the first, {most}{quotes}")
        yield TableRow(number, _pick(place, fields, places, optional))


def _find_columns(
    place: str, columns: Mapping[str, Column], names: Sequence[str], optional: Collection[str]
) -> dict[str, int]:
    """Return the position of each column that must be there or is."""
    found = {}
    for what, column in columns.items():
        if isinstance(column, int):
            found[what] = column
        elif names.count(column) == 1:
            found[what] = names.index(column)
        elif what not in optional or column in names:
            count = f"{names.count(column)} columns" if column in names else "no column"
            said = f"{count} {column!r} (data.columns.{what}) in its header: {', '.join(names)}"
            raise UserError(f"{place}: {said}; give its name there, or its position from 0 if there is no header")
    return found


def _pick(place: str, fields: Sequence[str], places: Mapping[str, int], optional: Collection[str]) -> dict[str, str]:
    for what, column in places.items():
        if column >= len(fields) and what not in optional:
            where = f"the {what} is in column {column} from 0 (data.columns.{what})"
            raise UserError(f"{place}: the line has {count_columns(len(fields))}, but {where}")
    return {what: fields[column] for what, column in places.items() if column < len(fields)}


def _read_jsonl(
    path: Path, lines: Iterable[str], choose: Choose, optional: Collection[str], to_text: ToText
) -> Iterator[TableRow]:
    columns: Mapping[str, Column] = {}
    for number, line in enumerate(lines, 1):
        place = f"{path}:{number}"
        if not line.strip(BOM).strip():
            yield TableRow(number, {})
            continue
        row = _parse_object(line)
        columns = columns or choose(place, list(row or ()))
        if any(isinstance(key, int) for key in columns.values()):
            raise UserError(f"data.columns: positions given, but {path} is JSONL; its columns are keys, such as 'text'")
        if row is None:
            wanted = ", ".join(f'"{key}": "..."' for key in columns.values())
            raise UserError(f"{place}: this is not an object like {{{wanted}}}")
        if missing := [what for what, key in columns.items() if key not in row and what not in optional]:
            key, there = columns[missing[0]], ", ".join(row) or "none"
            raise UserError(f"{place}: there is no key {key!r} (data.columns.{missing[0]}); there is {there}")
        texts = {what: (str(key), row[str(key)]) for what, key in columns.items() if key in row}
        yield TableRow(number, {what: to_text(place, *value) for what, value in texts.items()})


def _parse_object(line: str) -> dict[str, Any] | None:
    """Return the object of a line, with what is in an object inside as `outer.inner` too; None if it is none."""
    try:
        row = json.loads(line.lstrip(BOM))
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    parts = ((outer, part) for outer, part in row.items() if isinstance(part, dict))
    return {**row, **{f"{outer}.{key}": value for outer, part in parts for key, value in part.items()}}
