"""Tests of how far a trained model's attention may be trusted, on some texts or a test set."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from saccade.data.labels.labelled import Text
from saccade.data.text.corpus import clean
from saccade.errors import UserError
from saccade.inspection.insight import Head
from saccade.inspection.trust.cases import TextAndAnswer, TrustTest
from saccade.inspection.trust.evidence import CHUNK, MEAN, Evidence, TrustCase, examine
from saccade.inspection.trust.verdict import TrustFigures
from saccade.tasks.base import Predictor


def trust(
    predictor: Predictor,
    texts: Iterable[str | Text],
    *,
    targets: Iterable[str] | None = None,
    head: Head | None = None,
    erase: str = "delete",
    seed: int = 0,
    watch: Callable[[Iterator[Evidence]], Iterable[Evidence]] = lambda found: found,
) -> TrustFigures:
    """Test a model on its own answers, or on `targets` (outputs, or labels).

    `head` is the one that `saccade look` shows (the one that aligns best, where it is known) unless another is given;
    `erase` is delete or unknown; `watch` sees the texts go by.
    """
    test, shown = predictor.trust_test(), head or predictor.traits.aligning or MEAN
    cases = make_cases(test, texts, targets)
    return TrustFigures.of(watch(examine(test.subject, cases, shown, erase=erase, seed=seed)))


def make_cases(test: TrustTest, texts: Iterable[str | Text], targets: Iterable[str] | None) -> Iterator[TrustCase]:
    """Make cases of texts, some at a time; those without a word are passed over."""
    pairs = _pairs(texts, targets)
    while part := list(itertools.islice(pairs, CHUNK)):
        found = test.cases([pair for pair in part if pair[0]])
        yield from (case for case in found if case.words)


def _pairs(texts: Iterable[str | Text], targets: Iterable[str] | None) -> Iterator[TextAndAnswer]:
    """Pair each text with its target, where there are any."""
    plain = (clean(text if isinstance(text, str) else text.text) for text in texts)
    if targets is None:
        yield from ((text, None) for text in plain)
        return
    for number, (text, target) in enumerate(itertools.zip_longest(plain, targets), 1):
        if text is None or target is None:
            short = "targets" if target is None else "texts"
            raise UserError(f"targets: there must be one for each text, but the {short} end after {number - 1:,}")
        yield text, clean(target)
