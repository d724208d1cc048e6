"""Reads texts with labels from files: TSV, CSV, JSONL, or lines that begin with the label. Errors name file and line.

A dialogue is a run of lines with the same name in its dialogue column.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from saccade.data.text.corpus import clean, read_raw_lines
from saccade.data.text.headers import is_header
from saccade.data.text.tables import as_text, has_columns, read_rows
from saccade.errors import UserError

TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")


class Lines(str):
    """A text whose lines are its sentences, as a list of them is read."""


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
    """Changes to a text before it is tokenised."""

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
    """Read the texts of files in order.

    Texts to learn from are not blank, and there must be one. Others are blank where a line is.
    """
    paths = list(paths)
    found = itertools.chain.from_iterable(
        (_read_table if has_columns(path) else _label_first)(path, columns, needs_label) for path in paths
    )
    first = next(found, None)
    if first is None and not needs_label:
        return iter(())
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


def _read_table(path: Path, columns: LabelColumns, needs_label: bool) -> Iterator[Text]:
    wanted = columns.present()
    for number, texts in read_rows(
        path,
        read_raw_lines(path),
        lambda *_: wanted,
        optional=() if needs_label else ("label",),
        to_text=partial(_as_text, columns),
    ):
        if texts and number == 1 and _is_header(texts.get("label", ""), texts["text"]):
            names = ", ".join(f"{name}: {texts[name].strip()}" for name in wanted if name in texts)
            raise UserError(f"{path}:1: this looks like a header; give names instead: data.columns: {{{names}}}")
        if texts:
            yield _check_text(path, number, texts, columns, needs_label)
        elif not needs_label and columns.dialogue is None:  # each line has an answer
            yield Text("")


def _as_text(columns: LabelColumns, place: str, key: str, value: Any) -> str:
    """Return a value of JSON as text; a list of labels as other files write it, with separators; sentences as lines."""
    if key == columns.text and isinstance(value, list):
        return Lines("\n".join(as_text(place, key, one) for one in value))
    if key != columns.label or not isinstance(value, list):
        return as_text(place, key, value)
    separator = columns.separator
    if separator is None:
        raise UserError(f"{place}: {key!r} is a list; for several labels at once set data.separator")
    if wrong := [label for label in value if not isinstance(label, str) or separator in label]:
        said = f"{json.dumps(wrong[0])} in {key!r}"
        raise UserError(f"{place}: {said}; labels must be strings without {separator!r} (data.separator)")
    return separator.join(value)


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


def clean_lines(text: str) -> str:
    """Clean each line; blank ones are left out."""
    return "\n".join(filter(None, map(clean, text.split("\n"))))


def _clean(value: str) -> str:
    return Lines(clean_lines(value)) if isinstance(value, Lines) else clean(value)


def _is_header(label: str, text: str) -> bool:
    return is_header((label, text)) or (label, text) == ("y", "x")


def _check_text(path: Path, number: int, values: dict[str, str], columns: LabelColumns, needs_label: bool) -> Text:
    cleaned = {name: _clean(value) for name, value in values.items()}
    if needs_label and columns.separator is None and not cleaned["label"]:
        raise UserError(f"{path}:{number}: there is no label")
    return Text(**{**cleaned, "label": columns.tidy(cleaned.get("label", ""))})
