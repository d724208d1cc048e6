"""Makes the cases of a trust test from texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from saccade.data.text.tokenizer import END, SPECIAL
from saccade.inspection.insight import TextSide
from saccade.inspection.trust.evidence import NO_WORD, TrustCase
from saccade.inspection.trust.subjects import Subject

TextAndAnswer = tuple[str, str | None]  # None: the model's own answer


class TrustTest(NamedTuple):
    """A model whose attention can be tested, and a function that makes cases of texts."""

    subject: Subject
    cases: Callable[[Sequence[TextAndAnswer]], Iterator[TrustCase]]


def make_case(side: TextSide, ids: list[int], answer: list[int]) -> TrustCase:
    """Make a case of a text and the ids of its answer; </s> at the end counts as no word."""
    words = side.words[:-1] if side.pieces[-1:] == [SPECIAL[END]] else side.words
    numbers = [number if number < len(words) else NO_WORD for number in side.word_of_piece]
    return TrustCase(words, ids, numbers, answer)
