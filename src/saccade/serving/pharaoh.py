"""Which words of a translation stand for which of the source, from the head that aligns best."""

from __future__ import annotations

from typing import Any, NamedTuple

from saccade.data.tokenizer import END, SPECIAL
from saccade.inspection.insight import Insight


class AlignedWords(NamedTuple):
    """The words of both sides, and for each word of the output the word of the source it read most (None: the end)."""

    source_words: list[str]
    words: list[str]
    read: list[int | None]

    def plain(self) -> dict[str, Any]:
        """Pharaoh's pairs, source first."""
        pairs = " ".join(f"{source}-{word}" for word, source in enumerate(self.read) if source is not None)
        return {"source_words": self.source_words, "words": self.words, "alignment": pairs}


def aligned_words(found: Insight) -> AlignedWords:
    """Without </s>; a word that looked most at the source's end stands for none."""
    source, output = _words(found, "source"), _words(found, "output")
    if not found.maps or not source:
        return AlignedWords(source, output, [None] * len(output))
    best = found.alignment().argmax(-1).tolist()[: len(output)]
    return AlignedWords(source, output, [index if index < len(source) else None for index in best])


def _words(found: Insight, side: str) -> list[str]:
    words = found.sides[side].words if side in found.sides else []
    return words[:-1] if words and words[-1] == SPECIAL[END] else list(words)
