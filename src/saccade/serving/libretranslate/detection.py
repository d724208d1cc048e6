"""Detect the language of a text among those of a server."""

from __future__ import annotations

import copy
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
        self._identifier = copy.copy(_load_identifier())
        self.codes = list(codes)
        known = set(self._identifier.labels)
        self._label = {code: label for code in codes if (label := code.partition("-")[0]) in known}
        self._identifier.set_languages(set(self._label.values()) or None)

    def detect(self, text: str, among: Collection[str] | None = None) -> list[DetectedLanguage]:
        """Return the languages, the most probable first; those that py3langid does not know come last."""
        codes = [code for code in self.codes if among is None or code in among]
        known = [code for code in codes if code in self._label]
        share = dict(self._identifier.rank(text)) if known else {}
        total = sum(share[self._label[code]] for code in known) or 1.0
        found = [DetectedLanguage(code, round(100 * share[self._label[code]] / total, 1)) for code in known]
        unknown = [DetectedLanguage(code, 0.0) for code in codes if code not in self._label]
        return sorted(found, key=lambda one: -one.confidence) + unknown


@functools.cache
def _load_identifier() -> Any:
    """Load the identifier of all languages; it takes a second."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
