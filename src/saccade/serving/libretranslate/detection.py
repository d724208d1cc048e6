"""Which of some languages a text is written in."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection
from typing import Any, NamedTuple, final

from py3langid.langid import MODEL_FILE, LanguageIdentifier


class Detected(NamedTuple):
    """A language, and how sure that is, in percent."""

    language: str
    confidence: float


@final
class Detector:
    """Says which of some languages a text is written in (py3langid: naive Bayes over byte n-grams, no pickle)."""

    def __init__(self, codes: Collection[str]) -> None:
        self._whole = copy.copy(_identifier())
        self.codes = list(codes)
        known = set(self._whole.labels)
        self._label = {code: label for code in codes if (label := code.partition("-")[0]) in known}
        self._whole.set_languages(set(self._label.values()) or None)

    def detect(self, text: str, among: Collection[str] | None = None) -> list[Detected]:
        """The languages by how likely they are, the first the likeliest; those nobody can tell come last."""
        codes = [code for code in self.codes if among is None or code in among]
        known = [code for code in codes if code in self._label]
        share = dict(self._whole.rank(text)) if known else {}
        total = sum(share[self._label[code]] for code in known) or 1.0
        found = [Detected(code, round(100 * share[self._label[code]] / total, 1)) for code in known]
        unknown = [Detected(code, 0.0) for code in codes if code not in self._label]
        return sorted(found, key=lambda one: -one.confidence) + unknown


@functools.cache
def _identifier() -> Any:
    """All languages; reading it takes a second."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
