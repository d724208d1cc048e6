"""Detect the language of a text among those of a server."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any, NamedTuple, final

from py3langid.langid import MODEL_FILE, LanguageIdentifier


class DetectedLanguage(NamedTuple):
    """A language and its confidence in percent."""

    language: str
    confidence: float


@final
class Detector:
    """Ranks the languages of a server for a text (py3langid: naive Bayes over byte n-grams, no pickle)."""

    def __init__(self, codes: Collection[str]) -> None:
        self._identifier = _load_identifier()
        self.codes = list(codes)
        known = set(self._identifier.labels)
        self._label = {code: label for code in codes if (label := code.partition("-")[0]) in known}

    def detect(self, text: str, among: Collection[str] | None = None) -> list[DetectedLanguage]:
        """Return the languages, the most probable first; those that py3langid does not know come last.

        Their confidence is against each other and the likeliest language of all others: a German text is not English
        only because a server knows no German.
        """
        codes = [code for code in self.codes if among is None or code in among]
        known = [code for code in codes if code in self._label]
        share = {label: float(probability) for label, probability in self._identifier.rank(text)} if known else {}
        known.sort(key=lambda code: -share[self._label[code]])
        own = {self._label[code] for code in known}
        other = max((probability for label, probability in share.items() if label not in own), default=0.0)
        total = sum(share[label] for label in own) + other or 1.0
        found = [DetectedLanguage(code, round(100 * share[self._label[code]] / total, 1)) for code in known]
        return found + [DetectedLanguage(code, 0.0) for code in codes if code not in self._label]


@functools.cache
def _load_identifier() -> Any:
    """Load the identifier of all languages; it takes a second."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
