"""Reads texts with labels from files: TSV, CSV, JSONL, or lines that begin with the label. Errors name file and line.

A dialogue is a run of lines with the same name in its dialogue column.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saccade.data.text.corpus import clean, file_kind, read_raw_lines
from saccade.errors import UserError

TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
LONGEST_FIELD = 1 << 24  # characters of a CSV field
LABEL_HEADERS = {
    "label",
    "labels",
    "class",
    "category",
    "target",
    "sentiment",
    "stars",
    "rating",
    "intent",
    "topic",
    "y",
}
TEXT_HEADERS = {"text", "sentence", "review", "content", "message", "utterance", "document", "comment", "tweet", "x"}


class Text(NamedTuple):
    """A text to classify; its label, dialogue and speaker are empty where they are not known.

    Where texts have several labels at once, `label` is all of them, in order, with a separator between.
    """

    text: str
    label: str = ""
    dialogue: str = ""
    speaker: str = ""


class LabelColumns(NamedTuple):
    """The columns of a file: names from its header (or JSON keys), or positions from 0."""

    label: str | int = "label"
    text: str | int = "text"
    dialogue: str | int | None = None
    speaker: str | int | None = None
    separator: str | None = None  # between the labels of one text; None: each has one

    def present(self) -> dict[str, str | int]:
        """Return the columns that the file has, by what they hold."""
        return {name: column for name, column in self._asdict().items() if column is not None and name != "separator"}

    def tidy(self, label: str) -> str:
        """Return several labels in one order, each once; one label as it is."""
        return label if self.separator is None else self.separator.join(split_labels(label, self.separator))

    @property
    def are_positions(self) -> bool:
        return isinstance(self.text, int)


class Spelling(NamedTuple):
    """How a text is written before it is tokenised."""

    lowercase: bool = False
    split_punctuation: bool = False

    def words(self, text: str) -> list[str]:
        """Split a text into words; with `split_punctuation`, every sign outside a word is a word too."""
        plain = text.replace("\u2581", " ")  # SentencePiece's own sign for a space
        return TOKEN.findall(plain) if self.split_punctuation else plain.split()

    def __call__(self, text: str) -> str:
        """Return the words with one space between them, as the tokenizer reads them."""
        joined = " ".join(self.words(text))
        return joined.lower() if self.lowercase else joined


def split_labels(label: str, separator: str | None) -> list[str]:
    """Return the labels of a text, each once: one without a separator."""
    if separator is None:
        return [label]
    return sorted({clean(one) for one in label.split(separator)} - {""})


def read_labelled(paths: Iterable[Path], columns: LabelColumns, *, needs_label: bool = True) -> Iterator[Text]:
    """Read the texts of files in order and skip blank lines; files without any text raise a UserError."""
    paths = list(paths)
    found = itertools.chain.from_iterable(_reader(path)(path, columns, needs_label) for path in paths)
    first = next(found, None)
    if first is None:
        raise UserError(f"{', '.join(map(str, paths))}: it is empty; there must be at least one text")
    return itertools.chain([first], found)


def parse_lines(lines: Iterable[str], *, as_dialogue: bool) -> Iterator[Text]:
    """Turn each line into a text. As a dialogue, a blank line ends a dialogue and a line may be `speaker TAB text`."""
    number = 0
    for line in lines:
        if not as_dialogue:
            yield Text(clean(line))
        elif not line.strip():
            number += 1
        else:
            speaker, tab, text = line.partition("\t")
            yield Text(clean(text), "", str(number), clean(speaker)) if tab else Text(clean(line), "", str(number))


def _reader(path: Path) -> Callable[[Path, LabelColumns, bool], Iterator[Text]]:
    return {".jsonl": _jsonl, ".csv": _csv, ".tsv": _tsv}.get(file_kind(path), _label_first)


def _tsv(path: Path, columns: LabelColumns, needs_label: bool) -> Iterator[Text]:
    rows = ((number, line.rstrip("\r\n").split("\t")) for number, line in enumerate(read_raw_lines(path), 1))
    return _table(path, rows, columns, needs_label)


def _csv(path: Path, columns: LabelColumns, needs_label: bool) -> Iterator[Text]:
    return _table(path, _csv_rows(path), columns, needs_label)


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader(read_raw_lines(path), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(f"{path}:{number}: this is not CSV ({error})") from None


def _table(
    path: Path, rows: Iterator[tuple[int, list[str]]], columns: LabelColumns, needs_label: bool
) -> Iterator[Text]:
    places = _find_columns(path, rows, columns, needs_label)
    for number, fields in rows:
        if any(field.strip() for field in fields):
            picked = _pick_fields(path, number, fields, places, needs_label)
            if number == 1 and _is_header(picked.get("label", ""), picked["text"]):
                names = ", ".join(f"{name}: {fields[place]}" for name, place in places.items())
                raise UserError(f"{path}:1: this looks like a header; give names instead: data.columns: {{{names}}}")
            yield _check_text(path, number, picked, columns, needs_label)


def _find_columns(
    path: Path, rows: Iterator[tuple[int, list[str]]], columns: LabelColumns, needs_label: bool
) -> dict[str, int]:
    """Return the position of each column: as it is given, or as the header says."""
    if columns.are_positions:
        return {name: int(column) for name, column in columns.present().items()}
    header = [clean(name) for name in next(rows, (1, []))[1]]
    wanted = {name: column for name, column in columns.present().items() if needs_label or name != "label"}
    for name, column in wanted.items():
        if header and column not in header:
            said = f"no column {column!r} (data.columns.{name}) in its header: {', '.join(header)}"
            raise UserError(f"{path}:1: {said}; give its name there, or its position from 0 if there is no header")
    return {name: header.index(str(column)) for name, column in wanted.items() if header}


def _pick_fields(
    path: Path, number: int, fields: Sequence[str], places: dict[str, int], needs_label: bool
) -> dict[str, str]:
    picked = {}
    for name, place in places.items():
        if place < len(fields):
            picked[name] = fields[place]
        elif name != "label" or needs_label:
            count = "1 column" if len(fields) == 1 else f"{len(fields)} columns"
            where = f"the {name} is in column {place} from 0 (data.columns.{name})"
            raise UserError(f"{path}:{number}: the line has {count}, but {where}")
    return picked


def _jsonl(path: Path, columns: LabelColumns, needs_label: bool) -> Iterator[Text]:
    if columns.are_positions:
        raise UserError(f"data.columns: positions given, but {path} is JSONL; its columns are keys, such as 'text'")
    wanted = {name: column for name, column in columns.present().items() if needs_label or name != "label"}
    for number, line in enumerate(read_raw_lines(path), 1):
        if line.strip():
            row = _object(path, number, line)
            row = _join_labels(path, number, row, columns)
            values = {name: _value(path, number, row, str(column)) for name, column in wanted.items()}
            yield _check_text(path, number, values, columns, needs_label)


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UserError(f'{path}:{number}: this is not an object like {{"label": "...", "text": "..."}}')
    return row


def _join_labels(path: Path, number: int, row: dict[str, Any], columns: LabelColumns) -> dict[str, Any]:
    """Write a list of labels as other files do, with separators."""
    found, separator = row.get(str(columns.label)), columns.separator
    if not isinstance(found, list):
        return row
    if separator is None:
        raise UserError(f"{path}:{number}: {columns.label!r} is a list; for several labels at once set data.separator")
    if wrong := [label for label in found if not isinstance(label, str) or separator in label]:
        said = f"{json.dumps(wrong[0])} in {columns.label!r}"
        raise UserError(f"{path}:{number}: {said}; labels must be strings without {separator!r} (data.separator)")
    return {**row, str(columns.label): separator.join(found)}


def _value(path: Path, number: int, row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str | int) or isinstance(value, bool):
        said = f"{key!r} is {json.dumps(value)}" if key in row else f"there is no key {key!r}"
        raise UserError(f"{path}:{number}: {said}; it must be a string or a whole number")
    return str(value)


def _label_first(path: Path, columns: LabelColumns, needs_label: bool) -> Iterator[Text]:
    """Read the format of many sentence sets: the label, a space, the text."""
    if columns._replace(separator=None) != LabelColumns():
        said = f"given, but {path} is plain text, label first"
        raise UserError(f"data.columns: {said}; files with columns end in .tsv, .csv or .jsonl")
    for number, line in enumerate(read_raw_lines(path), 1):
        if cleaned := clean(line):
            label, _, text = cleaned.partition(" ") if needs_label else ("", "", cleaned)
            if not text:
                raise UserError(
                    f"{path}:{number}: there is no text behind {label!r}; a line is a label, a space, a text"
                )
            if number == 1 and _is_header(label, text):
                raise UserError(f"{path}:1: {cleaned!r} looks like a header; remove the line, or end the name in .tsv")
            yield _check_text(path, number, {"label": label, "text": text}, columns, needs_label)


def _is_header(label: str, text: str) -> bool:
    return label.strip().casefold() in LABEL_HEADERS and text.strip().casefold() in TEXT_HEADERS


def _check_text(path: Path, number: int, values: dict[str, str], columns: LabelColumns, needs_label: bool) -> Text:
    cleaned = {name: clean(value) for name, value in values.items()}
    if needs_label and columns.separator is None and not cleaned["label"]:
        raise UserError(f"{path}:{number}: there is no label")
    return Text(**{**cleaned, "label": columns.tidy(cleaned.get("label", ""))})
