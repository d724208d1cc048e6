"""Turns tags (BIO, IOB1, BIOES) into spans as conlleval does, and back; repairs tags, and scores spans by F1."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
SPELLED = re.compile(r"[BIES]-.+")
Tags = Sequence[str]


class Span(NamedTuple):
    """Tokens `first` to `last` of a sentence, both included, and the kind of the span."""

    kind: str
    first: int
    last: int


def find_spans(tags: Tags) -> list[Span]:
    """Return the spans of tags in any scheme, as conlleval reads them (Tjong Kim Sang & De Meulder 2003).

    A tag continues the span before it if it is I or E, that one is B or I, and both have the same kind.
    """
    found: list[Span] = []
    before, kind_before = OUTSIDE, ""
    for index, tag in enumerate(tags):
        part, _, kind = tag.partition("-")
        if part in "IE" and before in "BI" and kind == kind_before:
            found[-1] = found[-1]._replace(last=index)
        elif part != OUTSIDE:
            found.append(Span(kind, index, index))
        before, kind_before = part, kind
    return found


def bio(spans: Iterable[Span], length: int) -> list[str]:
    """Write B at a span's first token and I inside (IOB2)."""
    return _spell(spans, length, lambda span, at: "B" if at == span.first else "I")


def bioes(spans: Iterable[Span], length: int) -> list[str]:
    """Write B at a span's first token, E at its last, S at its only one, I inside (Ratinov & Roth 2009, section 5)."""

    def part(span: Span, at: int) -> str:
        if span.first == span.last:
            return "S"
        return {span.first: "B", span.last: "E"}.get(at, "I")

    return _spell(spans, length, part)


def iob1(spans: Iterable[Span], length: int) -> list[str]:
    """Write I everywhere, but B at the first token of a span right behind another of its kind."""
    spans = list(spans)
    touching = {span.first for before, span in itertools.pairwise(spans) if _touch(before, span)}
    return _spell(spans, length, lambda span, at: "B" if at == span.first and at in touching else "I")


SCHEMES: dict[str, Callable[[Iterable[Span], int], list[str]]] = {"bio": bio, "iob1": iob1, "bioes": bioes}


class RepairedTags(NamedTuple):
    """Tags that follow their scheme, and how many of them were changed."""

    tags: list[str]
    num_changed: int


def repair_tags(tags: Tags, scheme: str) -> RepairedTags:
    """Spell the spans that conlleval reads in these tags as the scheme demands."""
    right = SCHEMES[scheme](find_spans(tags), len(tags))
    return RepairedTags(right, sum(one != other for one, other in zip(tags, right, strict=True)))


def convert_tags(tags: Tags, scheme: str) -> list[str]:
    """Spell the spans of tags in any scheme in this one."""
    return SCHEMES[scheme](find_spans(tags), len(tags))


def detect_scheme(sentences: Iterable[Tags]) -> str | None:
    """Return the scheme in which a file's tags need the fewest repairs, or None if they spell no spans.

    Tags that spell spans beside O mean a scheme, even if some are misspelled. Parts of speech spell none.
    """
    sentences = list(sentences)
    tags = {tag for sentence in sentences for tag in sentence}
    spelled = {tag for tag in tags if tag == OUTSIDE or SPELLED.fullmatch(tag)}
    if spelled != tags and not (OUTSIDE in tags and len(spelled) > 1):
        return None
    if any(tag[0] in "ES" for tag in spelled):
        return "bioes"
    sound = [sentence for sentence in sentences if spelled.issuperset(sentence)]
    return min(("bio", "iob1"), key=lambda scheme: sum(repair_tags(one, scheme).num_changed for one in sound))


def allowed_pairs(tags: Tags, scheme: str) -> list[list[bool]]:
    """Return which tag may follow which in BIO or BIOES, a row for each earlier tag; the last is a sentence's edge."""
    edged = [*tags, OUTSIDE]
    return [[_follows(before, tag, is_bioes=scheme == "bioes") for tag in edged] for before in edged]


class SpanScore(NamedTuple):
    """Numbers of spans that are gold, were found, and were found right: with the same first and last token and kind."""

    num_gold: int
    num_found: int
    num_right: int

    @property
    def precision(self) -> float:
        """The share of found spans that are right, in percent; 0 if none was found."""
        return 100 * self.num_right / self.num_found if self.num_found else 0.0

    @property
    def recall(self) -> float:
        """The share of gold spans that were found, in percent; 0 if there is none."""
        return 100 * self.num_right / self.num_gold if self.num_gold else 0.0

    @property
    def f1(self) -> float:
        return 200 * self.num_right / total if (total := self.num_gold + self.num_found) else 0.0


def span_scores(gold: Iterable[Tags], found: Iterable[Tags]) -> tuple[SpanScore, dict[str, SpanScore]]:
    """Score spans over all kinds and for each, as conlleval counts."""
    wanted, given, right = Counter[str](), Counter[str](), Counter[str]()
    for gold_tags, found_tags in zip(gold, found, strict=True):
        one, other = set(find_spans(gold_tags)), set(find_spans(found_tags))
        for counter, spans in ((wanted, one), (given, other), (right, one & other)):
            counter.update(span.kind for span in spans)
    by_kind = {kind: SpanScore(wanted[kind], given[kind], right[kind]) for kind in sorted(wanted | given)}
    return SpanScore(wanted.total(), given.total(), right.total()), by_kind


def _spell(spans: Iterable[Span], length: int, part: Callable[[Span, int], str]) -> list[str]:
    tags = [OUTSIDE] * length
    for span in spans:
        for at in range(span.first, span.last + 1):
            tags[at] = f"{part(span, at)}-{span.kind}"
    return tags


def _touch(before: Span, span: Span) -> bool:
    return before.last + 1 == span.first and before.kind == span.kind


def _follows(before: str, tag: str, *, is_bioes: bool) -> bool:
    (part_before, _, kind_before), (part, _, kind) = before.partition("-"), tag.partition("-")
    goes_on = part_before in "BI" and part in "IE" and kind == kind_before
    if is_bioes and part_before in "BI":  # the open span must end first
        return goes_on
    return goes_on or part not in "IE"
