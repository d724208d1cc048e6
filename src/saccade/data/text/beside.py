"""Tokenizers that know the unknown words of one text as well, so that these can be copied from it (See 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import UNKNOWN, Tokenizer, Vocabulary


@final
class ExtendedVocabulary:
    """A vocabulary, and beside it the symbols of one text that it doesn't know: the k-th of these has the id V + k."""

    def __init__(self, vocabulary: Vocabulary, text: str) -> None:
        self._vocabulary, self.begins_word = vocabulary, vocabulary.begins_word
        pairs = zip(vocabulary.split(text), vocabulary.encode(text), strict=True)
        self.unknown = list(dict.fromkeys(symbol for symbol, index in pairs if index == UNKNOWN))
        self._ids = {symbol: vocabulary.size + place for place, symbol in enumerate(self.unknown)}

    @property
    def size(self) -> int:
        """The size of the vocabulary with these symbols."""
        return self._vocabulary.size + len(self.unknown)

    def encode(self, text: str) -> list[int]:
        known = self._vocabulary.encode(text)
        if not self._ids or UNKNOWN not in known:
            return known
        pairs = zip(self._vocabulary.split(text), known, strict=True)
        return [self._ids.get(symbol, UNKNOWN) if index == UNKNOWN else index for symbol, index in pairs]

    def decode(self, ids: Sequence[int]) -> str:
        return self._vocabulary.glue.join(self.pieces([index for index in ids if index >= UNKNOWN]))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        known = self._vocabulary.symbols
        return [known[index] if index < len(known) else self.unknown[index - len(known)] for index in ids]

    def save(self, path: Path) -> None:
        """Write the vocabulary; the symbols of the text belong to the text."""
        self._vocabulary.save(path)


def extend_tokenizer(tokenizer: Tokenizer, text: str) -> Tokenizer:
    """Return a tokenizer that also knows the unknown words, or characters, of a text; pieces spell them all already."""
    return ExtendedVocabulary(tokenizer, text) if isinstance(tokenizer, Vocabulary) else tokenizer


def encode_beside(tokenizer: Tokenizer, pair: Pair) -> tuple[list[int], list[int]]:
    """Return the ids of both sides, where unknown words of the source have ids of their own."""
    own = extend_tokenizer(tokenizer, pair.source)
    return own.encode(pair.source), own.encode(pair.target)


def forget_absent(ids: Sequence[int], source_ids: Sequence[int], size: int) -> list[int]:
    """Return ids whose symbols beside a vocabulary of this size are <unk> where the source, perhaps cut, lacks them."""
    there = set(source_ids)
    return [index if index < size or index in there else UNKNOWN for index in ids]
