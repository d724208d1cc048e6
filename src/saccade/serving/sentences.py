"""Long texts in sentences: split so that joining them again gives every white space back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LONGEST = 400  # bytes of UTF-8, and so tokens at most, that a model reads at once; what is longer is cut

# What no sentence ends after, though a full stop stands there. Single letters are initials (J. K. Rowling).
ABBREVIATIONS = frozenset(
    str.split("""
    mr mrs ms dr prof st sr jr vs etc eg ie cf al no nos vol fig p pp ca approx dept est inc ltd co corp gen col lt
    sgt capt rev hon jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun
    m mm mme mmes mlle mlles me av bd env ex hr fr bzw usw dh zb ggf evtl nr abs bspw inkl sog u a
    sra srta ud uds pág págs núm tel dott sig
""")
)
END = r"[.!?…‽؟।॥。．！？｡]"
CLOSING = "[\"'”’»›)\\]}」』）】〉》]"
BOUNDARY = re.compile(  # each run is tried once, from its start: no text takes long
    rf"(?P<wide>(?<![。！？｡])[。！？｡]++{CLOSING}*+\s*+)"  # these need no space behind them
    rf"|(?P<end>(?<!{END}){END}++)(?P<closing>{CLOSING}*+)(?P<space>\s++)"
    r"|(?<![^\S\n])[^\S\n]*+\n\s*+"  # a line that ends, ends a sentence
)
CUTS = (r"[;:,，、；：]\s*", r"\s+", r"")  # where a sentence is cut that is too long: best first


class SentenceSpan(NamedTuple):
    """A sentence, and the white space before and after it (between two, the first one has it)."""

    before: str
    text: str
    after: str


def split(text: str, longest: int = LONGEST) -> list[SentenceSpan]:
    """Sentences of at most so many bytes, which joined again are the text; a blank text is one without words."""
    parts = [piece for sentence in _sentences(text) for piece in _short(sentence, longest)]
    return [_stripped(part) for part in parts] or [SentenceSpan("", "", "")]


def join(sentences: Sequence[SentenceSpan], texts: Sequence[str]) -> str:
    """Translations in the places of their sentences."""
    return "".join(f"{sentence.before}{text}{sentence.after}" for sentence, text in zip(sentences, texts, strict=True))


def _sentences(text: str) -> Iterator[str]:
    """Slices of the text, each a sentence with the white space behind it."""
    start = 0
    for found in BOUNDARY.finditer(text):
        if found["end"] and not _ends(text, start, found):
            continue
        yield text[start : found.end()]
        start = found.end()
    if start < len(text):
        yield text[start:]


def _ends(text: str, start: int, found: re.Match[str]) -> bool:
    """Whether a sentence ends at a sign that often ends one: the next begins like a sentence."""
    following = text[found.end() : found.end() + 1]
    if not following or "\n" in found["space"]:
        return True
    if following.islower():
        return False
    if found["end"] != "." or found["closing"]:
        return True
    word = re.search(r"[\w.]*$", text[max(start, found.start() - 20) : found.start()])
    before = word[0].replace(".", "").lower() if word else ""
    is_initial = len(before) == 1 and before.isalpha()
    return not (is_initial or before in ABBREVIATIONS)


def _short(sentence: str, longest: int) -> Iterator[str]:
    """A sentence in parts that are short enough: cut behind a comma, a word, or anywhere."""
    while (most := _fitting(sentence, longest)) < len(sentence):
        for cut in CUTS:
            ends = [found.end() for found in re.finditer(cut, sentence[:most])]
            if ends and ends[-1] > most // 3:
                break
        yield sentence[: ends[-1]]
        sentence = sentence[ends[-1] :]
    if sentence:
        yield sentence


def _fitting(text: str, longest: int) -> int:
    """How many of its first characters have at most so many bytes; one at least."""
    return max(1, len(text[:longest].encode("utf-8", "replace")[:longest].decode("utf-8", "ignore")))


def _stripped(part: str) -> SentenceSpan:
    text = part.strip()
    if not text:
        return SentenceSpan(part, "", "")
    start = part.index(text)
    return SentenceSpan(part[:start], text, part[start + len(text) :])
