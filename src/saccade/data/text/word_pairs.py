"""Words of a corpus that translate each other, by IBM model 1 in both directions (Brown 1993, section 4.2)."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from saccade.data.text.corpus import Pair

WORD = re.compile(r"\w+(?:[-'’]\w+)*")
MOST_CELLS = 8_000_000  # source words times target words of the pairs that are learned from: some 300 MB
ROUNDS = 5  # of expectation and maximisation
LEAST = 0.1  # a lower probability, in either direction, makes no link
RARE = 2  # words that come less often are not linked
COMMON = 0.02  # nor is a word that is such a share of all words: an article, "and", "in"
STEM = 3  # letters that the forms of a word have in common
Integers = NDArray[np.int64]


class Link(NamedTuple):
    """A word of a source and the word of its target that translates it, by their places in both."""

    source: int
    target: int


@final
@dataclass(frozen=True)
class WordPairs:
    """The words that translate each other, lower-cased, with p(target | source) * p(source | target)."""

    weights: dict[tuple[str, str], float]

    def link(self, sources: Sequence[str], targets: Sequence[str]) -> list[Link]:
        """Return the links of two lists of words, each word in one link at most, the surest first."""
        both = itertools.product(enumerate(map(str.lower, sources)), enumerate(map(str.lower, targets)))
        found = [(self.weights.get((s, t), 0.0), -abs(i - j), i, j) for (i, s), (j, t) in both]
        links, used = list[Link](), (set[int](), set[int]())
        for weight, _, row, column in sorted(found, reverse=True):
            if weight and row not in used[0] and column not in used[1]:
                links.append(Link(row, column))
                used[0].add(row)
                used[1].add(column)
        return links

    def find_common_form(self, source: str, target: str) -> str:
        """Return the form of a target word in which it translates the source word most often."""
        stem = target.lower()[:STEM]
        forms = (one for one in self._forms.get(source.lower(), ()) if one.startswith(stem))
        found = max(forms, key=lambda one: self.weights[source.lower(), one], default=target)
        return found.capitalize() if target[:1].isupper() else found

    @cached_property
    def _forms(self) -> dict[str, list[str]]:
        found = defaultdict[str, list[str]](list)
        for source, target in self.weights:
            found[source].append(target)
        return found


def learn_word_pairs(pairs: Iterable[Pair]) -> WordPairs:
    """Learn from the first pairs of a corpus, as many as fit; the result depends on them alone."""
    sides: tuple[list[list[str]], list[list[str]]] = ([], [])
    cells = 0
    for pair in pairs:
        words = [[found[0].lower() for found in WORD.finditer(text)] for text in pair]
        cells += len(words[0]) * len(words[1])
        if cells > MOST_CELLS:
            break
        for side, own in zip(sides, words, strict=True):
            side.append(own)
    names, ids = zip(*map(_number, sides), strict=True)
    p_target, key, width = _expect(ids[0], ids[1], len(names[1]))
    p_source, other_key, other_width = _expect(ids[1], ids[0], len(names[0]))
    other = dict(zip(other_key.tolist(), p_source.tolist(), strict=True))
    weights = dict[tuple[str, str], float]()
    for cell, p in zip(key.tolist(), p_target.tolist(), strict=True):
        source, target = divmod(cell, width)
        q = other.get(target * other_width + source, 0.0)
        if source and target and min(p, q) >= LEAST:
            weights[names[0][source], names[1][target]] = p * q
    return WordPairs(weights)


def _number(texts: list[list[str]]) -> tuple[list[str], list[Integers]]:
    """Number the words of one side; 0 is a word that is too rare or too common."""
    counts = Counter(itertools.chain.from_iterable(texts))
    most = COMMON * counts.total()
    names = ["", *sorted(word for word, count in counts.items() if RARE <= count <= max(RARE, most))]
    number = {word: index for index, word in enumerate(names)}
    return names, [np.array([number.get(word, 0) for word in words], np.int64) for words in texts]


def _expect(
    given: Sequence[Integers], written: Sequence[Integers], width: int
) -> tuple[NDArray[np.float64], Integers, int]:
    """Return p(written | given) of words that come together, and the keys of both, given * width + written."""
    cells = [(np.append(0, one)[:, None] * width + other).ravel() for one, other in zip(given, written, strict=True)]
    steps = itertools.accumulate((len(one) for one in written), initial=0)
    place = [
        np.tile(np.arange(step, step + len(other)), len(one) + 1)
        for step, one, other in zip(steps, given, written, strict=False)
    ]
    key, cell = np.unique(np.concatenate(cells), return_inverse=True)
    step = np.concatenate(place)
    p: NDArray[np.float64] = np.ones(len(key))
    for _ in range(ROUNDS):
        weight = p[cell]
        weight /= np.bincount(step, weight)[step]
        count = np.bincount(cell, weight, len(key))
        p = count / np.bincount(key // width, count)[key // width]
    return p, key, width
