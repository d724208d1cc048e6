"""The choice of a kind of tokenizer for the texts of two sides, and of a number of tokens for an amount of text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from saccade.data.text.sentences import count_words

MOST_TOKENS = 8000
FEWEST_PIECES, WORDS_A_PIECE = 500, 100
BYTES = 260  # tokens of a SentencePiece model before the first character
FEW_WORDS = 6  # of a text that may be read letter by letter
FEW_LETTERS = 12  # of a text without spaces: a few Chinese words, say
ENOUGH = 50  # texts to tell whether their words are new
FEW_SYMBOLS, OFTEN = 100, 10  # different words of all texts together, and how often each is used


class SideFacts(NamedTuple):
    """Statistics of the texts of a side."""

    num_texts: int
    usual_words: float  # of a text: the median
    is_short: bool  # most texts are a few letters without spaces
    num_words: int
    num_different: int

    @classmethod
    def of(cls, texts: Sequence[str]) -> SideFacts:
        words = [word for text in texts for word in text.split()]
        letters = [len(text) for text in texts if len(text.split()) == 1]
        is_short = 2 * sum(length <= FEW_LETTERS for length in letters) > len(texts)
        return cls(len(texts), median(map(count_words, texts)) if texts else 0, is_short, len(words), len(set(words)))

    @property
    def has_new_words(self) -> bool:
        """Return True if there is a new word in every second text."""
        return self.num_texts >= ENOUGH and 2 * self.num_different >= self.num_texts

    @property
    def is_spelt(self) -> bool:
        """Return True if texts are words of an open list: names, or words to pronounce or to inflect."""
        return self.has_new_words and self.usual_words <= 2

    @property
    def is_closed(self) -> bool:
        """Return True if all texts are made of few words, each used often: phones, actions, tags."""
        return 0 < self.num_different <= FEW_SYMBOLS and self.num_words >= OFTEN * self.num_different

    @property
    def kind(self) -> str:
        if self.is_spelt or (self.is_short and self.has_new_words):
            return "characters"
        return "words" if self.is_closed else "unigram"


REASONS = {
    "characters": "few letters or words, mostly new",
    "words": "few different words",
    "unigram": "texts of many words",
}


def choose_kinds(sources: Sequence[str], targets: Sequence[str]) -> tuple[str, str]:
    """Choose characters for words that are mostly new, words where these are few, and pieces for all else."""
    source, target = SideFacts.of(sources), SideFacts.of(targets)
    if not target.is_spelt:
        return source.kind, target.kind
    if source.usual_words <= FEW_WORDS:
        return "characters", "characters"  # a word and its tags, say
    return source.kind, "unigram"  # a word of the sentence, which has it in the same pieces


def choose_size(kind: str, texts: Sequence[str], num_texts: int) -> int:
    """Choose the most tokens for texts, a sample of `num_texts`; they may have fewer."""
    if kind not in ("unigram", "bpe"):
        return MOST_TOKENS
    letters = {letter for text in texts for letter in text}
    num_words = sum(map(count_words, texts)) * num_texts / max(1, len(texts))
    return min(MOST_TOKENS, max(FEWEST_PIECES + round(num_words / WORDS_A_PIECE), BYTES + 2 * len(letters)))
