"""Reads files of tagged sentences: finds their scheme, checks their tags, and repairs and counts wrong ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from saccade.data.tags.columns import TagColumns, TaggedSentence, read_columns, read_paired
from saccade.data.tags.lexicon import Document
from saccade.data.tags.spans import OUTSIDE, convert_tags, detect_scheme, find_spans, repair_tags
from saccade.data.text.corpus import find_files
from saccade.errors import UserError

LONGEST_DOCUMENT = 256  # sentences that are read together; a longer document is read in parts


class TaggedFile(NamedTuple):
    """A file of tagged sentences, as it was read."""

    path: Path
    sentences: list[TaggedSentence]

    def place(self, sentence: TaggedSentence, index: int) -> str:
        """Return where a token stands, as file:line."""
        return f"{self.path}:{sentence.line + (0 if sentence.is_one_line else index)}"


class RepairedSentences(NamedTuple):
    """Sentences in the model's tag scheme, how many tags were repaired, and where the first of these stands."""

    sentences: list[TaggedSentence]
    num_repaired: int = 0
    first_repaired: str = ""


def split_documents(given: Iterable[TaggedSentence]) -> Iterator[Document]:
    """Yield the sentences of each document, at most LONGEST_DOCUMENT at a time."""
    for _, group in itertools.groupby(given, key=lambda sentence: sentence.document):
        while part := list(itertools.islice(group, LONGEST_DOCUMENT)):
            yield part


def read_tagged(field: str, pattern: str, columns: TagColumns) -> list[TaggedFile]:
    """Read the files that a path, folder or glob stands for."""
    return read_files(find_files(field, pattern), columns)


def read_pair(field: str, words: str, tags: str) -> list[TaggedFile]:
    """Read sentences whose words and tags are in two files."""
    found = [find_files(f"{field}.{side}", pattern) for side, pattern in (("words", words), ("tags", tags))]
    for side, (first, *more) in zip(("words", "tags"), found, strict=True):
        if more:
            raise UserError(f"{field}.{side}: {first} and {len(more)} more; allowed: one file")
    return [TaggedFile(found[1][0], read_paired(found[0][0], found[1][0]))]


def read_files(paths: Iterable[Path], columns: TagColumns) -> list[TaggedFile]:
    """Read files of sentences; documents are numbered through all of them."""
    files, first = list[TaggedFile](), 0
    for path in paths:
        found = [one._replace(document=first + one.document) for one in read_columns(path, columns)]
        files.append(TaggedFile(path, found))
        first = found[-1].document + 1
    return files


def detect_file_scheme(files: Iterable[TaggedFile]) -> str | None:
    """Return the tag scheme of files, or None if their tags spell no spans."""
    return detect_scheme(sentence.tags for file in files for sentence in file.sentences)


def repair_files(files: Iterable[TaggedFile], scheme: str | None, spelling: str) -> RepairedSentences:
    """Repair tags by their scheme and spell them in another; without a scheme, leave them as they are."""
    done, count, first = list[TaggedSentence](), 0, ""
    for file in files:
        for sentence in file.sentences:
            if scheme is None:
                done.append(sentence)
                continue
            _check(file, sentence, scheme)
            right, changed = repair_tags(sentence.tags, scheme)
            if changed and not count:
                first = file.place(sentence, next(i for i, tag in enumerate(right) if tag != sentence.tags[i]))
            count += changed
            done.append(sentence._replace(tags=tuple(convert_tags(right, spelling))))
    return RepairedSentences(done, count, first)


def tag_set(sentences: Iterable[TaggedSentence], spelling: str | None) -> list[str]:
    """Return every tag of the sentences in alphabetical order; for spans, all tags that a scheme has for the kinds."""
    sentences = list(sentences)
    if spelling is None:
        return sorted({tag for sentence in sentences for tag in sentence.tags})
    kinds = {span.kind for sentence in sentences for span in find_spans(sentence.tags)}
    return [OUTSIDE, *(f"{part}-{kind}" for kind in sorted(kinds) for part in _parts(spelling))]


def _parts(scheme: str) -> str:
    return "BIES" if scheme == "bioes" else "BI"


def _check(file: TaggedFile, sentence: TaggedSentence, scheme: str) -> None:
    for index, tag in _find_misspelled(sentence, scheme):
        wanted = f"allowed in {scheme}: O, or one of {', '.join(_parts(scheme))} with a hyphen and a kind"
        raise UserError(f"{file.place(sentence, index)}: the tag is {tag!r}; {wanted} (or data.scheme: none)")


def _find_misspelled(sentence: TaggedSentence, scheme: str) -> Iterator[tuple[int, str]]:
    for index, tag in enumerate(sentence.tags):
        part, hyphen, kind = tag.partition("-")
        if tag != OUTSIDE and not (len(part) == 1 and part in _parts(scheme) and hyphen and kind):
            yield index, tag
