"""Turns words into a tagger's input: lower-cased ids, characters, shapes, and a word's other places in its document."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.tags.columns import TaggedSentence
from saccade.data.text.tokenizer import END, SPECIAL, START, UNKNOWN, Vocabulary
from saccade.errors import UserError

LONGEST_WORD = 40  # characters; of a longer word the beginning and the end are read
LONGEST_SHAPE = 8
MOST_PLACES = 16  # of one word that are compared with each other; memory is linear in the document
Document = Sequence[TaggedSentence]


class TaggerInput(NamedTuple):
    """Sentences as a tagger reads them. Every spelling of the batch is there once.

    `place_NS` has a row for each word that a document has more than once: its places, counted through [B, T].
    """

    word_BT: Tensor
    length_B: Tensor
    spelling_BT: Tensor  # which of the N spellings
    character_NC: Tensor
    character_length_N: Tensor
    shape_N: Tensor
    place_NS: Tensor
    place_length_N: Tensor
    feature_BTF: Tensor  # of further columns, where they are read

    def to(self, device: torch.device) -> TaggerInput:
        return TaggerInput(*(tensor.to(device, non_blocking=True) for tensor in self))


@final
@dataclass(frozen=True)
class Lexicon:
    """The vocabularies of words (as `normalize_word` writes them), characters and shapes, and the tags.

    `spelling` is the scheme of the spans (bio, bioes), or None if the tags spell none (parts of speech).
    """

    words: Vocabulary
    characters: Vocabulary
    shapes: Vocabulary
    tags: list[str]
    spelling: str | None
    features: tuple[Vocabulary, ...] = ()  # of further columns

    @classmethod
    def learn(
        cls, sentences: Iterable[TaggedSentence], tags: Sequence[str], *, spelling: str | None, min_count: int = 2
    ) -> Lexicon:
        """Keep what the training text has at least `min_count` times; its rarer words teach what <unk> is like."""
        sentences = list(sentences)
        spellings = Counter(word for sentence in sentences for word in sentence.words)
        words, characters, shapes = Counter[str](), Counter[str](), Counter[str]()
        for word, count in spellings.items():
            words[normalize_word(word)] += count
            shapes[word_shape(word)] += count
            for character in word:
                characters[character] += count
        return cls(
            _vocabulary(words, "words", min_count),
            _vocabulary(characters, "characters", min_count),
            _vocabulary(shapes, "words", min_count),
            list(tags),
            spelling,
            tuple(_vocabulary(Counter(map(_symbol, column)), "words", min_count) for column in _columns(sentences)),
        )

    def with_words(self, words: Iterable[str]) -> Lexicon:
        """Return a lexicon with more words, those of a file of vectors, behind its own."""
        known = set(self.words.symbols)
        new = dict.fromkeys(word for word in map(normalize_word, words) if word and word not in known)
        return replace(self, words=Vocabulary([*self.words.symbols, *new], "words"))

    def counts(self, sentences: Iterable[TaggedSentence]) -> NDArray[np.int64]:
        """Count how often each word stands in sentences, [V]."""
        found = np.zeros(self.words.size, np.int64)
        for word, count in Counter(word for sentence in sentences for word in sentence.words).items():
            found[_id(self.words, normalize_word(word))] += count
        return found

    def tokens(self, documents: Sequence[Document]) -> TaggerInput:
        """Return the sentences of documents, in order, as one batch."""
        sentences = [sentence.words for document in documents for sentence in document]
        spellings: dict[str, int] = {}
        spelling_BT = pad_ids([[spellings.setdefault(word, len(spellings)) for word in words] for words in sentences])
        word_N = np.array([_id(self.words, normalize_word(word)) for word in spellings])
        length_B = np.array([len(words) for words in sentences])
        real_BT = np.arange(spelling_BT.shape[1]) < length_B[:, None]
        characters = [[START, *self.characters.encode(_shorten(word)), END] for word in spellings]
        places = _find_repeated(documents, spelling_BT.shape[1])
        table = (
            np.where(real_BT, word_N[spelling_BT], 0),
            length_B,
            spelling_BT,
            pad_ids(characters),
            np.array([len(row) for row in characters]),
            np.array([_id(self.shapes, word_shape(word)) for word in spellings]),
            pad_ids(places),
            np.array([len(row) for row in places], np.int64),
            self._features([sentence for document in documents for sentence in document]),
        )
        return TaggerInput(*map(torch.from_numpy, table))

    def _features(self, sentences: Sequence[TaggedSentence]) -> NDArray[np.int64]:
        """Return the ids of further columns, [B, T, F]."""
        count = len(self.features)
        for sentence in sentences:
            if len(sentence.features) != count:
                reads = f"words with {count} further column{'s' if count > 1 else ''} (data.feature_columns)"
                raise UserError(f"this model reads {reads}; give it a word with its columns on each line, or a file")
        longest = max(len(sentence.words) for sentence in sentences)
        table = np.zeros((len(sentences), longest, count), np.int64)
        for row, sentence in enumerate(sentences):
            for column, (vocabulary, values) in enumerate(zip(self.features, sentence.features, strict=True)):
                table[row, : len(values), column] = [_id(vocabulary, _symbol(value)) for value in values]
        return table

    def tag_ids(self, sentences: Iterable[Sequence[str]]) -> Tensor:
        """Return tags as ids, [B, T]."""
        ids = {tag: index for index, tag in enumerate(self.tags)}
        return torch.from_numpy(pad_ids([[ids[tag] for tag in tags] for tags in sentences]))

    def to_json(self) -> str:
        parts = {name: getattr(self, name).symbols for name in ("words", "characters", "shapes")}
        features = {"features": [one.symbols for one in self.features]} if self.features else {}
        return json.dumps({**parts, "tags": self.tags, "spelling": self.spelling, **features}, ensure_ascii=False)

    @classmethod
    def load(cls, path: Path) -> Lexicon:
        try:
            stored = json.loads(path.read_text("utf-8"))
            words, characters, shapes = (stored[name] for name in ("words", "characters", "shapes"))
            tags, spelling, features = stored["tags"], stored["spelling"], stored.get("features", [])
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path} is damaged: it is no lexicon") from None
        kinds = Vocabulary(words, "words"), Vocabulary(characters, "characters"), Vocabulary(shapes, "words")
        return cls(*kinds, tags, spelling, tuple(Vocabulary(symbols, "words") for symbols in features))


@functools.lru_cache(1 << 16)
def normalize_word(word: str) -> str:
    """Return a word as the vocabulary knows it: lower-cased, every digit a 0, without spaces."""
    return re.sub(r"\d", "0", "".join(word.split()).lower())


@functools.lru_cache(1 << 16)
def word_shape(word: str) -> str:
    """Return X for capitals, x for small letters, 0 for digits, two at most in a row: Xxx, XX, 00-00, Xx0."""
    drawn = "".join(_character_class(character) for character in word if not character.isspace())
    return re.sub(r"(.)\1+", r"\1\1", drawn)[:LONGEST_SHAPE]


def pad_ids(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return rows of ids as a table, with zeros behind them."""
    table = np.zeros((len(rows), max(map(len, rows), default=0)), np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table


def _character_class(character: str) -> str:
    if character.isupper():
        return "X"
    if character.islower():
        return "x"
    return "0" if character.isdigit() else character


def _shorten(word: str) -> str:
    half = LONGEST_WORD // 2
    return word if len(word) <= LONGEST_WORD else word[:half] + word[-half:]


def _columns(sentences: Sequence[TaggedSentence]) -> list[list[str]]:
    """Return all values of each further column."""
    count = len(sentences[0].features) if sentences else 0
    return [[value for sentence in sentences for value in sentence.features[column]] for column in range(count)]


def _symbol(value: str) -> str:
    """Return a value as one word."""
    return value.replace(" ", "_")


def _id(vocabulary: Vocabulary, symbol: str) -> int:
    return (vocabulary.encode(symbol) or [UNKNOWN])[0]


def _vocabulary(counts: Counter[str], kind: str, min_count: int) -> Vocabulary:
    ranked = sorted((symbol for symbol in counts if symbol.strip()), key=lambda symbol: (-counts[symbol], symbol))
    return Vocabulary([*SPECIAL, *(symbol for symbol in ranked if counts[symbol] >= min_count)], kind)


def _find_repeated(documents: Sequence[Document], steps: int) -> list[list[int]]:
    """Return the places of words that a document has more than once, in runs of at most MOST_PLACES."""
    found, row = list[list[int]](), 0
    for document in documents:
        places: dict[str, list[int]] = {}
        for sentence in document:
            for step, word in enumerate(sentence.words):
                places.setdefault(normalize_word(word), []).append(row * steps + step)
            row += 1
        runs = (at[start : start + MOST_PLACES] for at in places.values() for start in range(0, len(at), MOST_PLACES))
        found += (run for run in runs if len(run) > 1)
    return found
