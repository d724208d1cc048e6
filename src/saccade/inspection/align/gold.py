"""Reads word alignments that people made, in Pharaoh's or NAACL's format; the first line tells which it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from saccade.data.text.corpus import read_lines
from saccade.errors import UserError
from saccade.inspection.align.links import Gold, Link, Links

PHARAOH = re.compile("([0-9]{1,9})([-?p])([0-9]{1,9})")
NAACL = re.compile(r"([0-9]{1,9}) ([0-9]{1,9}) ([0-9]{1,9})(?: ([SP]))?(?: [01](?:\.[0-9]*)?)?")
Size = tuple[int, int]  # source words, target words


class _GoldLink(NamedTuple):
    """A link in a file: the line, the sentence (from 0), and whether it is sure."""

    line: int
    sentence: int
    link: Link
    is_sure: bool


def read_gold(path: Path, sizes: Sequence[Size]) -> list[Gold]:
    """Read the gold links of sentences of these sizes; an error names the file and the line.

    In Pharaoh's format a line is a sentence: `0-0` is sure, `1?2` and `1p2` are possible, and words count from 0. In
    NAACL's format a line is a link, `sentence source target [S|P]`, counted from 1; a 0 means no word and is skipped.
    """
    lines = list(read_lines(path))
    first = next(filter(None, lines), "")
    found = _read_naacl(path, lines) if NAACL.fullmatch(first) else _read_pharaoh(path, lines, len(sizes))
    sure: list[set[Link]] = [set() for _ in sizes]
    possible: list[set[Link]] = [set() for _ in sizes]
    for one in found:
        _check(path, one, sizes)
        possible[one.sentence].add(one.link)
        if one.is_sure:
            sure[one.sentence].add(one.link)
    return [Gold(frozenset(some), frozenset(all_)) for some, all_ in zip(sure, possible, strict=True)]


def read_links(path: Path) -> Iterator[Links]:
    """Yield the links of each line of a file in Pharaoh's format, sure and possible ones."""
    for number, line in enumerate(read_lines(path), 1):
        yield frozenset(link for link, _ in _parse_line(path, number, line))


def _parse_line(path: Path, number: int, line: str) -> Iterator[tuple[Link, bool]]:
    """Yield each link of a line in Pharaoh's format, and True if it is sure."""
    for word in line.split():
        match = PHARAOH.fullmatch(word)
        if match is None:
            raise UserError(f"{path}:{number}: {word!r} is no link; allowed: 0-0 (sure), 0?0 or 0p0 (possible)")
        yield (int(match[1]), int(match[3])), match[2] == "-"


def _read_pharaoh(path: Path, lines: list[str], num_sentences: int) -> Iterator[_GoldLink]:
    if len(lines) != num_sentences:
        raise UserError(f"{path}: {len(lines):,} lines; there must be {num_sentences:,}, one for each sentence pair")
    for number, line in enumerate(lines, 1):
        for link, is_sure in _parse_line(path, number, line):
            yield _GoldLink(number, number - 1, link, is_sure)


def _read_naacl(path: Path, lines: list[str]) -> Iterator[_GoldLink]:
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        match = NAACL.fullmatch(line)
        if match is None:
            raise UserError(f"{path}:{number}: {line!r} is no link; allowed: sentence source target [S|P], from 1 on")
        sentence, source, target = (int(match[group]) for group in (1, 2, 3))
        if source and target:
            yield _GoldLink(number, sentence - 1, (source - 1, target - 1), match[4] != "P")


def _check(path: Path, found: _GoldLink, sizes: Sequence[Size]) -> None:
    if not 0 <= found.sentence < len(sizes):
        what = f"sentence {found.sentence + 1} given; there are {len(sizes):,}"
        raise UserError(f"{path}:{found.line}: {what}, counted from 1")
    for side, index, size in zip(("source", "target"), found.link, sizes[found.sentence], strict=True):
        if index >= size:
            what = f"a link to {side} word {index}, counted from 0, given"
            raise UserError(f"{path}:{found.line}: {what}; sentence {found.sentence + 1} has {size}")
