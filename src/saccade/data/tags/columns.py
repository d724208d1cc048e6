"""Reads and writes CoNLL columns: a token a line, a blank line between sentences, -DOCSTART- before a document."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from saccade.data.text.corpus import clean, read_raw_lines
from saccade.errors import UserError

DOCUMENT = "-DOCSTART-"


class TaggedSentence(NamedTuple):
    """Words, their tags if there are any, the number of their document, and the line of the first word in its file."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    document: int = 0
    line: int = 0


class TagColumns(NamedTuple):
    """The columns of the word and the tag, from 0; -1 is the last. Without a tag column only words are read."""

    word: int = 0
    tag: int | None = -1


WORD_AND_TAG = TagColumns()


def read_columns(path: Path, columns: TagColumns = WORD_AND_TAG) -> list[TaggedSentence]:
    """Read the sentences of a file, plain or gzip; a file without a sentence raises a UserError."""
    found = list(parse_sentences(path, read_raw_lines(path), columns))
    if not found:
        raise UserError(f"{path}: there is no sentence in it; there must be lines of columns, word first and tag last")
    return found


def parse_sentences(
    name: Path | str, lines: Iterable[str], columns: TagColumns = WORD_AND_TAG
) -> Iterator[TaggedSentence]:
    """Yield sentences from lines; messages use the name. Before any -DOCSTART- each is a document of its own."""
    document, has_documents, num_columns = -1, False, 0
    rows: list[list[str]] = []
    first = 0
    for number, line in enumerate(itertools.chain(lines, [""]), 1):
        fields = split_fields(line)
        if fields and fields[0] != DOCUMENT:
            num_columns = num_columns or len(fields)
            _check(f"{name}:{number}", fields, num_columns, columns)
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


def looks_like_columns(line: str, tags: Iterable[str]) -> bool:
    """Return whether a file's first line has columns: a tab, -DOCSTART-, or a tag behind a word."""
    fields = split_fields(line)
    return "\t" in line.strip() or fields[:1] == [DOCUMENT] or (len(fields) > 1 and fields[-1] in tags)


def format_sentence(words: Sequence[str], tags: Sequence[str]) -> str:
    """Return a sentence as lines of word, tab, tag, without the blank line that follows."""
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))


def _sentence(rows: list[list[str]], columns: TagColumns, document: int, line: int) -> TaggedSentence:
    tags = () if columns.tag is None else tuple(row[columns.tag] for row in rows)
    return TaggedSentence(tuple(row[columns.word] for row in rows), tags, document, line)


def _check(place: str, fields: list[str], num_columns: int, columns: TagColumns) -> None:
    if len(fields) != num_columns:
        raise UserError(f"{place}: the line has {_count_columns(len(fields))}; the lines before have {num_columns}")
    for name, index in columns._asdict().items():
        if index is None:
            continue
        if not -len(fields) <= index < len(fields):
            raise UserError(
                f"{place}: the line has {_count_columns(len(fields))}; there is no column {index} for the {name}"
            )
        if not fields[index]:
            raise UserError(f"{place}: the {name} is empty")
    if columns.tag is not None and columns.word % len(fields) == columns.tag % len(fields):
        wanted = "there must be a word and a tag in two of them, with tabs or spaces between"
        raise UserError(f"{place}: the line has {_count_columns(len(fields))}; {wanted}")


def _count_columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"
