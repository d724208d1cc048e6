"""Calibrated probabilities of words and of whole outputs, from those of a translator's pieces."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from saccade.errors import UserError
from saccade.inspection.calibration import Floats, MonotoneMap, WordMap
from saccade.inspection.insight import TextSide
from saccade.tasks.translate.result import TranslationResult, WordConfidence

NAME = "confidence.json"


class WordProbabilities(NamedTuple):
    """The words of an output, without </s>, and p of each: the product of its pieces'."""

    words: list[str]
    p: Floats
    is_given: list[bool]  # words that were put in, and are certain


@final
@dataclass(frozen=True)
class Confidence:
    """The calibration that was fitted on the validation set.

    `words` maps the model's p of a word to the share of such words that are right, which is that its reference has them
    in the same order. `texts` maps the mean of these to the share of an output's words that are right.
    """

    words: WordMap
    texts: MonotoneMap
    num_words: int
    num_texts: int

    def tell(self, result: TranslationResult, side: TextSide) -> TranslationResult:
        """Return the result with its confidence; an output without words has none."""
        found = read_words(result, side)
        if not found.words:
            return result
        p = np.where(found.is_given, 1.0, self.words(found.p))
        pairs = [(word, round(float(one), 4)) for word, one in zip(found.words, p, strict=True)]
        return result._replace(confidence=WordConfidence(round(float(self.texts(p.mean())), 4), pairs))

    def text(self) -> str:
        """Return what its file holds."""
        stored = {"words": self.words._asdict(), "sentences": self.texts._asdict()}
        return json.dumps({**stored, "num_words": self.num_words, "num_sentences": self.num_texts}, indent=1)


def read_words(result: TranslationResult, side: TextSide) -> WordProbabilities:
    """Return the probabilities of an output's words."""
    count = len(side.words) - result.ended if result.pieces else 0
    steps, places = np.array(result.log_probabilities), np.array(side.word_of_piece)
    total = np.bincount(places, steps, len(side.words))[:count] if count > 0 else np.zeros(0)
    is_given = [bool((steps[places == word] == 0).all()) for word in range(len(total))]
    return WordProbabilities(side.words[: len(total)], np.exp(total), is_given)


def load(folder: Path) -> Confidence | None:
    """Load what was fitted at the end of a training; None: it is not there."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        stored: dict[str, Any] = json.loads(path.read_text("utf-8"))
        texts = MonotoneMap(*(tuple(map(float, stored["sentences"][name])) for name in MonotoneMap._fields))
        words = WordMap(*(float(stored["words"][name]) for name in WordMap._fields))
        return Confidence(words, texts, int(stored["num_words"]), int(stored["num_sentences"]))
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; delete it, and call saccade train again: it is fitted anew") from None
