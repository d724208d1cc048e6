"""Placeholders in texts: `{0}`, `%s`, `<x id="1"/>`, e-mail addresses and URLs. They are found here, and taken out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from saccade.data.text.corpus import clean

PLACEHOLDER = re.compile(
    r"""
      (?P<tag> </?(?!unk>)[A-Za-z][\w:.-]*+
               (?:\s++[\w:.-]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"'<>=]++))?+)*+ \s*+/?> )
    | (?P<url> (?:https?|ftp)://[^\s<>"“”«»。，、；！？）】」』]++ | www\.[^\s<>"“”«»。，、；！？）】」』]++ )
    | [\w.+-]++@[\w-]++(?:\.[\w-]++)++                        # an e-mail address
    | \{\{[^{}]*+\}\} | [$\#]\{[^{}\s]*+\} | \{[\w.:!,\[\]\#-]*+\}
    | %(?:\d++\$|\(\w++\))[-+0\#]*+\d*+(?:\.\d++)?+(?:hh?|ll?|[zjt])?+[sdiufFeEgGxXocrap@]
    | (?<![\d%])%[-+0\#]*+\d*+(?:\.\d++)?+(?:hh?|ll?|[zjt])?+[sdiufFeEgGxXocrap@](?![a-zß-öø-ÿ])
    | %%
    """,
    re.VERBOSE,
)
AFTER_URL = ".,;:!?'…*_"  # what ends a sentence, not the address before it
GLUED = re.compile(r"[A-Za-z0-9_%#$€£=+*&|~^\\]")  # written together with a placeholder: {0}MB, #%d, ${0}
PAIRS = {"(": ")", "[": "]", "{": "}", "'": "'", '"': '"', "“": "”", "„": "“", "«": "»", "‹": "›", "‘": "’", "`": "`"}
CLOSING = re.compile(r"[.,;:!?…)\]}»”]")  # stands behind a word without a space


class Placeholder(NamedTuple):
    """A part of a text that is not translated: what it is, and the place it was taken from in what was left.

    `before` and `after` are the characters that it touched there, if it touched any.
    """

    text: str
    place: int
    before: str
    after: str
    is_tag: bool


class StrippedText(NamedTuple):
    """A text without its placeholders."""

    text: str
    placeholders: tuple[Placeholder, ...]


def find_placeholders(text: str) -> Counter[str]:
    """Count the placeholders of a text."""
    return Counter(text[start:stop] for start, stop, _ in _find(text))


def take_out(text: str) -> StrippedText:
    """Take the placeholders out of a text, with what is written together with them."""
    rest, found, at = "", list[Placeholder](), 0
    for start, stop, is_tag in _join(text, list(_find(text))):
        rest = _add(rest, text[at:start])
        before, after = text[:start][-1:].strip(), text[stop : stop + 1].strip()
        found.append(Placeholder(text[start:stop], len(rest.rstrip()), before, after, is_tag))
        at = stop
    return StrippedText(_add(rest, text[at:]).strip(), tuple(found))


def _add(before: str, text: str) -> str:
    """Write a text behind another one, with one space where either has some."""
    space = " " if text[:1].isspace() or (before.endswith(" ") and not CLOSING.match(text)) else ""
    ending = " " if text[-1:].isspace() else ""
    own = clean(text)
    return f"{before.rstrip()}{space}{own}{ending if own else ''}" if before else f"{own}{ending}"


def _find(text: str) -> Iterator[tuple[int, int, bool]]:
    for found in PLACEHOLDER.finditer(text):
        start, stop = found.span()
        if found["url"]:
            stop = start + len(_end_url(found[0]))
        yield start, stop, found["tag"] is not None


def _end_url(url: str) -> str:
    """Leave out what belongs to the sentence around an address: a full stop, a bracket that was opened before it."""
    while url[-1] in AFTER_URL or (url[-1] in ")]}" and url.count(url[-1]) > url.count("([{"[")]}".index(url[-1])])):
        url = url[:-1]
    return url


def _join(text: str, found: list[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """Take in what is written together with a placeholder; tags touch words that are translated."""
    joined = list[tuple[int, int, bool]]()
    for number, (start, stop, is_tag) in enumerate(found):
        least = joined[-1][1] if joined else 0
        most = found[number + 1][0] if number + 1 < len(found) else len(text)
        while not is_tag and start > least and GLUED.match(text[start - 1]):
            start -= 1
        while not is_tag and stop < most and GLUED.match(text[stop]):
            stop += 1
        while not is_tag and least < start and stop < most and PAIRS.get(text[start - 1]) == text[stop]:
            start, stop = start - 1, stop + 1
        between = text[least:start]
        if joined and not is_tag and not joined[-1][2] and not re.search(r"[^\W\d_]|\s", between):
            joined[-1] = (joined[-1][0], stop, False)
        else:
            joined.append((start, stop, is_tag))
    return joined
