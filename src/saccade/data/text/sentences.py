"""Split long texts into sentences, and join them again with the same white space; tell texts by their sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

FEW_SEVERAL = 0.05  # texts with several sentences, where nearly all are one
MAX_BYTES = 400  # of UTF-8, and so at most as many tokens, that a model reads at once; longer sentences are cut

# A full stop after these ends no sentence. Single letters are initials (J. K. Rowling).
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
ENDED = re.compile(rf"{END}{CLOSING}*\s*$")
BOUNDARY = re.compile(  # each run is tried only from its start, so that the time is linear
    rf"(?P<wide>(?<![。！？｡])[。！？｡]++{CLOSING}*+\s*+)"  # these need no space after them
    rf"|(?P<end>(?<!{END}){END}++)(?P<closing>{CLOSING}*+)(?P<space>\s++)"
    r"|(?<![^\S\n])[^\S\n]*+\n\s*+"  # the end of a line ends a sentence
)
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)  # scripts
CUTS = (r"[;:,，、；：]\s*", r"\s+", r"")  # where to cut a sentence that is too long, best first


class SentenceSpan(NamedTuple):
    """A sentence and the white space around it; the space between two belongs to the first."""

    before: str
    text: str
    after: str


def count_words(text: str) -> int:
    """Count words; in scripts without spaces each letter is one."""
    return max(len(text.split()), len(UNSPACED.findall(text)))


def split(text: str, max_bytes: int = MAX_BYTES) -> list[SentenceSpan]:
    """Split a text into sentences of at most `max_bytes`; a blank text is one sentence without words."""
    return [_strip(part) for part in _pieces(text, max_bytes)] or [SentenceSpan("", "", "")]


def split_long(text: str, measure: Callable[[str], int], most: int) -> list[SentenceSpan]:
    """Return a text whole; one that measures more than `most` in parts of as many sentences as fit."""
    parts: list[str] = []
    size = most + 1  # of the last part: at the start there is none
    for piece in [text] if measure(text) <= most else _pieces(text, MAX_BYTES):
        size += measure(piece)
        if size > most:
            parts.append("")
            size = measure(piece)
        parts[-1] += piece
    return [_strip(part) for part in parts]


def tell_texts(texts: Iterable[str], *, have_languages: bool) -> str:
    """Tell what texts are: documents, most of which have several sentences; single sentences; or anything else.

    Texts that nobody translates, as questions with what they are about, belong together where some have several.
    """
    found = [(list(_sentences(text)), text) for text in texts]
    num_several = sum(len(sentences) > 1 for sentences, _ in found)
    if 2 * num_several > len(found):
        return "documents"
    num_ended = sum(ENDED.search(text) is not None for _, text in found)
    are_single = 2 * num_ended > len(found) and num_several <= FEW_SEVERAL * len(found)
    return "sentences" if have_languages or are_single else "anything"


def join(sentences: Sequence[SentenceSpan], texts: Sequence[str]) -> str:
    """Join translations, with the white space of their sentences."""
    return "".join(f"{sentence.before}{text}{sentence.after}" for sentence, text in zip(sentences, texts, strict=True))


def _pieces(text: str, max_bytes: int) -> Iterator[str]:
    return (piece for sentence in _sentences(text) for piece in _cut(sentence, max_bytes))


def _sentences(text: str) -> Iterator[str]:
    """Slice a text into sentences, each with the white space after it."""
    start = 0
    for found in BOUNDARY.finditer(text):
        if found["end"] and not _is_end(text, start, found):
            continue
        yield text[start : found.end()]
        start = found.end()
    if start < len(text):
        yield text[start:]


def _is_end(text: str, start: int, found: re.Match[str]) -> bool:
    """Return whether a full stop or the like ends a sentence: what follows begins like one."""
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


def _cut(sentence: str, max_bytes: int) -> Iterator[str]:
    """Cut a sentence into parts of at most `max_bytes`: after a comma, after a word, or anywhere."""
    while (most := _num_fitting(sentence, max_bytes)) < len(sentence):
        for cut in CUTS:
            ends = [found.end() for found in re.finditer(cut, sentence[:most])]
            if ends and ends[-1] > most // 3:
                break
        yield sentence[: ends[-1]]
        sentence = sentence[ends[-1] :]
    if sentence:
        yield sentence


def _num_fitting(text: str, max_bytes: int) -> int:
    """Return how many first characters fit into `max_bytes`, at least one."""
    return max(1, len(text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")))


def _strip(part: str) -> SentenceSpan:
    text = part.strip()
    if not text:
        return SentenceSpan(part, "", "")
    start = part.index(text)
    return SentenceSpan(part[:start], text, part[start + len(text) :])
