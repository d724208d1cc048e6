"""Which words of a translation stand for which of the source, from the head that aligns best."""

from __future__ import annotations

from typing import Any, NamedTuple

from saccade.data.text.tokenizer import END, SPECIAL
from saccade.inspection.insight import Insight


class AlignedWords(NamedTuple):
    """The words of both sides, and what each word of the output read of those of the source."""

    source_words: list[str]
    words: list[str]
    weights: list[list[float]]  # the last column is the source's end; none where the model has no attention

    def weight(self, word: int, source: int) -> float:
        """What a word read of one of the source."""
        return self.weights[word][source] if self.weights else -abs(word - source)

    @property
    def read(self) -> list[int | None]:
        """For each word the one that it read most; None: the end, it stands for none."""
        count = len(self.source_words)
        if not self.weights:  # as good as any guess: in the same order
            return [word * count // len(self.words) for word in range(len(self.words))]
        best = [max(range(len(row)), key=row.__getitem__) for row in self.weights]
        return [index if index < count else None for index in best]

    def plain(self) -> dict[str, Any]:
        """Pharaoh's pairs, source first."""
        read = self.read if self.weights else []
        pairs = " ".join(f"{source}-{word}" for word, source in enumerate(read) if source is not None)
        return {"source_words": self.source_words, "words": self.words, "alignment": pairs}


def aligned_words(found: Insight) -> AlignedWords:
    """Without </s> on either side."""
    source, output = _words(found, "source"), _words(found, "output")
    weights = found.alignment().tolist()[: len(output)] if found.maps else []
    return AlignedWords(source, output, weights)


def _words(found: Insight, side: str) -> list[str]:
    words = found.sides[side].words if side in found.sides else []
    return words[:-1] if words and words[-1] == SPECIAL[END] else list(words)
