"""Align the words of a translation with those of the source, by the head that aligns best."""

from __future__ import annotations

from typing import Any, NamedTuple

from saccade.data.text.tokenizer import END, SPECIAL
from saccade.inspection.insight import Insight


class AlignedWords(NamedTuple):
    """The words of both sides, and the weights of each output word on the source words."""

    source_words: list[str]
    words: list[str]
    weights: list[list[float]]  # the last column is </s>; empty if the model has no attention

    def weight(self, word: int, source: int) -> float:
        """Return the weight of an output word on a source word."""
        return self.weights[word][source] if self.weights else -abs(word - source)

    @property
    def read(self) -> list[int | None]:
        """The source word that each output word read most; None: it read </s> most."""
        count = len(self.source_words)
        if not self.weights:  # assume the same order
            return [word * count // len(self.words) for word in range(len(self.words))]
        best = [max(range(len(row)), key=row.__getitem__) for row in self.weights]
        return [index if index < count else None for index in best]

    def plain(self) -> dict[str, Any]:
        """Return JSON with Pharaoh's pairs, source first."""
        read = self.read if self.weights else []
        pairs = " ".join(f"{source}-{word}" for word, source in enumerate(read) if source is not None)
        return {"source_words": self.source_words, "words": self.words, "alignment": pairs}


def align_words(found: Insight) -> AlignedWords:
    """Align the words of an insight, without </s> on either side."""
    source, output = _words(found, "source"), _words(found, "output")
    weights = found.alignment().tolist()[: len(output)] if found.maps else []
    return AlignedWords(source, output, weights)


def _words(found: Insight, side: str) -> list[str]:
    words = found.sides[side].words if side in found.sides else []
    return words[:-1] if words and words[-1] == SPECIAL[END] else list(words)
