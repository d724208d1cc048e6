"""A glossary: terms of the source language, and how they are to be written in the other one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, final

from saccade.data.text.corpus import Pair, clean, header_error, read_raw_lines
from saccade.data.text.headers import is_header
from saccade.data.text.placeholders import PLACEHOLDER
from saccade.data.text.sentences import UNSPACED
from saccade.errors import UserError
from saccade.tasks.translate.wording.annotate import MARKS, TermNote

FIRST_WORD = re.compile(r"\w+|\W", re.DOTALL)
Entry = tuple[str, str]


class Match(NamedTuple):
    """An entry in a text, from a character to another."""

    start: int
    stop: int
    entry: Entry


@final
@dataclass(frozen=True)
class Glossary:
    """Entries, in order; no two have the same source.

    One in small letters is found however the text writes it, one with capitals only as it is. Of entries that overlap
    in a text the longest is taken. Words are whole, but in scripts without spaces.
    """

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, given: Glossary | Mapping[str, str] | Iterable[Entry]) -> Glossary:
        """Make one of {"cat": "chat"}, or of pairs."""
        if isinstance(given, Glossary):
            return given
        rows = given.items() if isinstance(given, Mapping) else given
        return cls._check((f"glossary: {source!r}", source, target) for source, target in rows)

    @classmethod
    def read(cls, path: Path) -> Glossary:
        """Read a file of UTF-8 with an entry a line: the source, a tab, the target. Blank lines are nothing."""
        return cls._check(_read_rows(path))

    @classmethod
    def _check(cls, rows: Iterable[tuple[str, str, str]]) -> Glossary:
        found = dict[str, str]()
        for place, *sides in rows:
            source, target = map(clean, sides)
            if not source or not target:
                raise UserError(f"{place}: its {'target' if source else 'source'} is blank; both sides must have text")
            if any(mark in source + target for mark in MARKS):
                raise UserError(f"{place}: it has one of {' '.join(MARKS)}, which mark terms in sources")
            if found.setdefault(source, target) != target:
                raise UserError(f"{place}: {source!r} is to be {found[source]!r} and {target!r}; allowed: one of them")
        if not found:
            raise UserError("glossary: it has no entry; there must be at least one")
        return cls(tuple(found.items()))

    def over(self, other: Glossary | None) -> Glossary:
        """Return the entries of both, where both have one its own."""
        return self if other is None else Glossary(tuple({**dict(other.entries), **dict(self.entries)}.items()))

    def find(self, text: str) -> tuple[TermNote, ...]:
        """Return the places of a clean text where entries are, none inside a placeholder, the first first."""
        taken = [found.span() for found in PLACEHOLDER.finditer(text)]
        chosen = list[Match]()
        for match in sorted(self._matches(text), key=lambda one: (one.start - one.stop, one.start)):
            if all(match.stop <= start or stop <= match.start for start, stop in taken):
                taken.append((match.start, match.stop))
                chosen.append(match)
        return tuple(TermNote(one.start, one.stop, text[one.start : one.stop], one.entry[1]) for one in sorted(chosen))

    def _matches(self, text: str) -> Iterator[Match]:
        for word in FIRST_WORD.finditer(text):
            starts = range(word.start(), word.end()) if UNSPACED.search(word[0]) else (word.start(),)
            for start in starts:
                for source, target in self._by_start.get(_key(text[start : word.end()]), ()):
                    stop = start + len(source)
                    if _is_same(source, text[start:stop]) and _is_edge(text, stop):
                        yield Match(start, stop, (source, target))

    @cached_property
    def _by_start(self) -> dict[str, list[Entry]]:
        found = defaultdict[str, list[Entry]](list)
        for source, target in self.entries:
            found[_key(source)].append((source, target))
        return found


def _key(text: str) -> str:
    """Return what entries are looked up by: the first word, or in a script without spaces the first letter."""
    first = FIRST_WORD.match(text)
    word = first[0] if first else ""
    return word[:1] if UNSPACED.search(word) else word.casefold()


def _is_same(source: str, text: str) -> bool:
    return source == text or (source == source.lower() and source == text.lower())


def _is_edge(text: str, stop: int) -> bool:
    """Tell whether a word may end here."""
    both = text[stop - 1 : stop + 1]
    return len(both) < 2 or UNSPACED.search(both) is not None or re.fullmatch(r"\w\w", both) is None


def _read_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    number = 0
    for number, line in enumerate(read_raw_lines(path), 1):
        fields = line.lstrip("\ufeff").rstrip("\r\n").split("\t")
        if not any(map(str.strip, fields)):
            continue
        place = f"{path}:{number}"
        if len(fields) != 2:
            raise UserError(
                f"{place}: the line has {len(fields) - 1} tabs; there must be one, between a source and a target"
            )
        if number == 1 and is_header(pair := Pair(clean(fields[0]), clean(fields[1]))):
            raise header_error(place, pair)
        yield place, fields[0], fields[1]
    if not number:
        raise UserError(f"{path}: it is empty; there must be at least one entry")
