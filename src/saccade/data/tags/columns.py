"""Reads and writes tagged sentences: CoNLL columns (a token a line, a blank line between sentences, -DOCSTART- before a
document), JSONL (lists of tokens and tags), or two files with a sentence a line, words in one and tags in the other.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saccade.data.text.corpus import clean, read_raw_lines
from saccade.data.text.tables import count_columns, file_kind, has_columns
from saccade.errors import UserError

DOCUMENT = "-DOCSTART-"
WORD_HEADERS = {"word", "words", "token", "tokens", "form"}
TAG_HEADERS = {"tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "upos", "pos_tag"}
Column = int | str  # a position from 0 (-1 is the last), or a name in the header; in JSONL a key


class TaggedSentence(NamedTuple):
    """Words, their tags if there are any, the number of their document, and the line of the first word in its file.

    `features` has a row for each further column that is read. All words may stand on that one line.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    document: int = 0
    line: int = 0
    features: tuple[tuple[str, ...], ...] = ()
    is_one_line: bool = False


class TagColumns(NamedTuple):
    """The columns of the word, the tag, and features to read beside the word. Without a tag only words are read.

    In JSONL, positions stand for the keys "tokens" and "tags".
    """

    word: Column = 0
    tag: Column | None = -1
    features: tuple[Column, ...] = ()

    @property
    def named(self) -> list[tuple[str, Column]]:
        """Every column, with what it holds."""
        tag = [] if self.tag is None else [("tag", self.tag)]
        return [("word", self.word), *tag, *(("feature", column) for column in self.features)]

    def is_header(self, line: str) -> bool:
        """Return whether a line names the columns."""
        names = {column for _, column in self.named if isinstance(column, str)}
        return bool(names) and names.issubset(split_fields(line))

    def locate(self, name: Path | str, header: list[str]) -> TagColumns:
        """Return the positions of named columns."""

        def find(what: str, column: Column) -> int:
            if isinstance(column, str) and column not in header:
                raise UserError(f"{name}: no column {column!r} for the {what} in its header: {', '.join(header)}")
            return header.index(column) if isinstance(column, str) else column

        tag = None if self.tag is None else find("tag", self.tag)
        return TagColumns(find("word", self.word), tag, tuple(find("feature", one) for one in self.features))


WORD_AND_TAG = TagColumns()


def read_columns(path: Path, columns: TagColumns = WORD_AND_TAG) -> list[TaggedSentence]:
    """Read the sentences of a file, plain or gzip; a file without a sentence raises a UserError."""
    parse = parse_jsonl if has_lists(path) else parse_sentences
    found = list(parse(path, read_raw_lines(path), columns))
    if not found:
        raise UserError(f"{path}: there is no sentence in it; there must be lines of columns, word first and tag last")
    return found


def has_lists(path: Path) -> bool:
    """Return whether a line is a whole sentence in JSON. CSV, which has no sentences, and other JSON are refused."""
    if file_kind(path) == ".csv":
        wanted = "columns with tabs or spaces between and a blank line after a sentence, or .jsonl"
        raise UserError(f"{path}: tagged sentences are not read from CSV; allowed: {wanted}")
    return has_columns(path) and file_kind(path) == ".jsonl"


def read_paired(words: Path, tags: Path) -> list[TaggedSentence]:
    """Read two files with a sentence a line: words with spaces between them, and as many tags."""
    found = list[TaggedSentence]()
    lines = itertools.zip_longest(read_raw_lines(words), read_raw_lines(tags))
    for number, both in enumerate(lines, 1):
        if None in both:
            short, long = (words, tags) if both[0] is None else (tags, words)
            said = f"{short} ends after {number - 1:,} lines, {long} goes on"
            raise UserError(f"{said}: there must be a line of tags for each line of words")
        one, other = (tuple(clean(line).split()) for line in both)
        if len(one) != len(other):
            raise UserError(f"{tags}:{number}: {len(other)} tags for {len(one)} words; there must be one for each")
        if one:
            found.append(TaggedSentence(one, other, document=len(found), line=number, is_one_line=True))
    if not found:
        raise UserError(f"{words}: there is no sentence in it; there must be lines of words")
    return found


def parse_jsonl(name: Path | str, lines: Iterable[str], columns: TagColumns = WORD_AND_TAG) -> Iterator[TaggedSentence]:
    """Yield sentences from lines like {"tokens": ["a", "b"], "tags": ["O", "O"]}; each is a document of its own."""
    defaults = {"word": "tokens", "tag": "tags"}
    keys = [(what, column if isinstance(column, str) else defaults.get(what, column)) for what, column in columns.named]
    document = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            words, *rest = _parse_lists(f"{name}:{number}", line, keys)
            tags = rest.pop(0) if columns.tag is not None else ()
            yield TaggedSentence(words, tags, document, number, tuple(rest), is_one_line=True)
            document += 1


def _parse_lists(place: str, line: str, keys: list[tuple[str, Column]]) -> list[tuple[str, ...]]:
    try:
        row = json.loads(line.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UserError(f'{place}: this is not an object like {{"tokens": ["..."], "tags": ["..."]}}')
    found = [_parse_list(place, row, what, key) for what, key in keys]
    for values, (_, key) in zip(found, keys, strict=True):
        if len(values) != len(found[0]):
            raise UserError(f"{place}: {len(values)} in {key!r} for {len(found[0])} words; there must be one for each")
    return found


def _parse_list(place: str, row: dict[str, Any], what: str, key: Column) -> tuple[str, ...]:
    if key not in row:
        raise UserError(f"{place}: there is no key {key!r} for the {what}; there is {', '.join(row) or 'none'}")
    values = row[str(key)]
    if not isinstance(values, list) or any(isinstance(one, bool) or not isinstance(one, str | int) for one in values):
        raise UserError(f"{place}: {key!r} must be a list of strings or whole numbers")
    cleaned = tuple(clean(str(value)) for value in values)
    if not cleaned or not all(cleaned):
        raise UserError(f"{place}: {key!r} {'has an empty string' if cleaned else 'is empty'}")
    return cleaned


def parse_sentences(
    name: Path | str, lines: Iterable[str], columns: TagColumns = WORD_AND_TAG
) -> Iterator[TaggedSentence]:
    """Yield sentences from lines; messages use the name. Before any -DOCSTART- each is a document of its own.

    If columns have names, the first line is a header.
    """
    document, has_documents, num_columns, is_named = -1, False, 0, any(isinstance(c, str) for _, c in columns.named)
    rows: list[list[str]] = []
    first = 0
    for number, line in enumerate(itertools.chain(lines, [""]), 1):
        fields = split_fields(line)
        if fields and is_named:
            columns, is_named, num_columns = columns.locate(f"{name}:{number}", fields), False, len(fields)
            continue
        if fields and fields[0] != DOCUMENT:
            num_columns = num_columns or len(fields)
            _check(f"{name}:{number}", fields, num_columns, columns)
            if number == 1:
                _refuse_header(f"{name}:1", fields, columns)
            first = number if not rows else first
            rows.append(fields)
            continue
        if rows:
            document += not has_documents
            yield _sentence(rows, columns, document, first)
            rows = []
        if fields:
            has_documents, document = True, document + 1


def split_fields(line: str) -> list[str]:
    """Split a line into clean fields: at tabs if it has one, else at spaces."""
    if not clean(line):
        return []
    return [clean(field) for field in line.rstrip("\r\n").split("\t")] if "\t" in line else clean(line).split()


def parse_text(place: str, text: str, names: Sequence[str]) -> TaggedSentence:
    """Read a sentence to tag from a text: a line for each word, with its further columns of these names behind it."""
    rows = [(number, split_fields(line)) for number, line in enumerate(text.splitlines(), 1)]
    rows = [(number, fields) for number, fields in rows if fields]
    for number, fields in rows:
        if len(fields) != 1 + len(names) or not all(fields):
            wanted = f"a word, {', '.join(names)}"
            raise UserError(f"{place}, line {number}: {count_columns(len(fields))}; this model reads {wanted}")
    words, *features = zip(*(fields for _, fields in rows), strict=True) if rows else [()] * (1 + len(names))
    return TaggedSentence(words, features=tuple(features))


def looks_like_columns(line: str, tags: Iterable[str]) -> bool:
    """Return whether a file's first line has columns: a tab, -DOCSTART-, or a tag behind a word."""
    fields = split_fields(line)
    return "\t" in line.strip() or fields[:1] == [DOCUMENT] or (len(fields) > 1 and fields[-1] in tags)


def format_sentence(words: Sequence[str], tags: Sequence[str]) -> str:
    """Return a sentence as lines of word, tab, tag, without the blank line that follows."""
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))


def _sentence(rows: list[list[str]], columns: TagColumns, document: int, line: int) -> TaggedSentence:
    words, *rest = (tuple(row[int(column)] for row in rows) for _, column in columns.named)
    tags = rest.pop(0) if columns.tag is not None else ()
    return TaggedSentence(words, tags, document, line, tuple(rest))


def _refuse_header(place: str, fields: list[str], columns: TagColumns) -> None:
    word = fields[int(columns.word)]
    tags = [field for field in fields if field.casefold() in TAG_HEADERS]
    tag = fields[int(columns.tag)] if columns.tag is not None else "".join(tags[:1])
    if word.casefold() in WORD_HEADERS and tag in tags:
        said = f"data.word_column: {word}, data.tag_column: {tag}"
        raise UserError(f"{place}: this looks like a header; give the columns' names ({said}), or remove the line")


def _check(place: str, fields: list[str], num_columns: int, columns: TagColumns) -> None:
    if len(fields) != num_columns:
        raise UserError(f"{place}: the line has {count_columns(len(fields))}; the lines before have {num_columns}")
    for name, index in ((name, int(column)) for name, column in columns.named):
        if not -len(fields) <= index < len(fields):
            raise UserError(
                f"{place}: the line has {count_columns(len(fields))}; there is no column {index} for the {name}"
            )
        if not fields[index]:
            raise UserError(f"{place}: the {name} is empty")
    if columns.tag is not None and int(columns.word) % len(fields) == int(columns.tag) % len(fields):
        wanted = "there must be a word and a tag in two of them, with tabs or spaces between"
        raise UserError(f"{place}: the line has {count_columns(len(fields))}; {wanted}")
