"""Pairs of the phrasebook as ids of whole words, and which words are each other's translation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.data.batches import PairBatch, collate_pairs
from saccade.data.text.tokenizer import UNKNOWN
from saccade.lab.phrasebook import grammar

WORD = re.compile(r"\w+'|\w+|[^\w\s]")  # l' and homme are two words
SPECIAL_IDS = 4  # ids of words begin behind padding, <s>, </s> and <unk>
LEAST_TOGETHER = 5  # sentences in which two words must meet to be linked
LEAST_DICE = 0.6
Ids = NDArray[np.int32]
Links = set[tuple[int, int]]  # (source word, target word) of a pair, by their places


class Phrases(NamedTuple):
    """Pairs to learn from and to test on, as ids; the number of ids of each side; and the dictionary of ids."""

    train: list[tuple[Ids, Ids]]
    test: list[tuple[Ids, Ids]]
    num_source: int
    num_target: int
    dictionary: dict[int, int]

    def draw(self, num_rows: int, random: np.random.Generator) -> PairBatch:
        """Draw a batch of training pairs."""
        rows = [self.train[row] for row in random.integers(len(self.train), size=num_rows)]
        return collate(rows)

    def link(self, source: Ids, target: Ids) -> Links:
        """Link the words of a pair that the dictionary knows, where each stands once."""
        places = {word: place for place, word in enumerate(target.tolist()) if target.tolist().count(word) == 1}
        return {
            (place, places[self.dictionary[word]])
            for place, word in enumerate(source.tolist())
            if source.tolist().count(word) == 1 and self.dictionary.get(word) in places
        }


def collate(pairs: Sequence[tuple[Ids, Ids]]) -> PairBatch:
    """Pad pairs into one batch of sources and targets."""
    return collate_pairs([source for source, _ in pairs], [target for _, target in pairs])


def make(num_train: int, num_test: int, seed: int) -> Phrases:
    """Draw the phrasebook's sentences, none of them twice, and number their words."""
    parts = grammar.split(num_train, num_test, seed=seed)
    words = [[(split(pair.source), split(pair.target)) for pair in part] for part in parts]
    source, target = ({word: n for n, word in enumerate(_list(words[0], side), SPECIAL_IDS)} for side in (0, 1))
    train, test = ([(number(own, source), number(other, target)) for own, other in part] for part in words)
    return Phrases(train, test, SPECIAL_IDS + len(source), SPECIAL_IDS + len(target), find_dictionary(train))


def split(text: str) -> list[str]:
    """Split a sentence into words and marks, in small letters."""
    return WORD.findall(text.lower())


def _list(pairs: Sequence[tuple[list[str], list[str]]], side: int) -> list[str]:
    return sorted({word for pair in pairs for word in pair[side]})


def number(words: Sequence[str], ids: dict[str, int]) -> Ids:
    """Return the ids of words; words that are not known get <unk>."""
    return np.array([ids.get(word, UNKNOWN) for word in words], np.int32)


def find_dictionary(pairs: Sequence[tuple[Ids, Ids]]) -> dict[int, int]:
    """Find words that are each other's only translation: each meets the other most, by Dice's coefficient.

    2 |both| / (|one| + |other|), over sentences; words of grammar, which have no partner of their own, stay out.
    """
    alone: list[Counter[int]] = [Counter(), Counter()]
    both = Counter[tuple[int, int]]()
    for pair in pairs:
        sides = [set(side.tolist()) for side in pair]
        for count, side in zip(alone, sides, strict=True):
            count.update(side)
        both.update((one, other) for one in sides[0] for other in sides[1])
    best: dict[int, tuple[float, int]] = {}
    best_back: dict[int, tuple[float, int]] = {}
    for (one, other), n in both.items():
        dice = 2 * n / (alone[0][one] + alone[1][other])
        best[one] = max(best.get(one, (0.0, 0)), (dice, other))
        best_back[other] = max(best_back.get(other, (0.0, 0)), (dice, one))
    return {
        one: other
        for one, (dice, other) in best.items()
        if dice >= LEAST_DICE and both[one, other] >= LEAST_TOGETHER and best_back[other][1] == one
    }
