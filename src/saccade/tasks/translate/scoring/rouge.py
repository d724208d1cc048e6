"""ROUGE (Lin 2004): how much of a summary's words, pairs of words, or order of words is also in the reference.

Words are runs of letters and digits of any script, in lower case; nothing is stemmed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

WORD = re.compile(r"\w+")
Overlap = Callable[[list[str], list[str]], float]


def rouge_n(order: int) -> Overlap:
    """Return the F1 of n-grams of this order (section 2); two texts without any share nothing."""

    def overlap(output: list[str], reference: list[str]) -> float:
        written, wanted = _ngrams(output, order), _ngrams(reference, order)
        return _f1((written & wanted).total(), written.total(), wanted.total())

    return overlap


def rouge_l(output: list[str], reference: list[str]) -> float:
    """Compute the F1 of the longest common subsequence (section 3.1)."""
    return _f1(longest_common_subsequence(output, reference), len(output), len(reference))


def mean_rouge(overlap: Overlap, outputs: Sequence[str], references: Sequence[str]) -> float:
    """Return the mean over all pairs, in percent."""
    found = [overlap(split(output), split(wanted)) for output, wanted in zip(outputs, references, strict=True)]
    return 100 * sum(found) / max(1, len(found))


def split(text: str) -> list[str]:
    """Return the words of a text as ROUGE counts them."""
    return WORD.findall(text.lower())


def longest_common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Return its length. A bit stands for a word of `one`; those that are 0 are matched (Hyyrö 2004, figure 1)."""
    places: dict[str, int] = defaultdict(int)
    for place, word in enumerate(one):
        places[word] |= 1 << place
    full = unmatched = (1 << len(one)) - 1
    for word in other:
        hit = unmatched & places.get(word, 0)
        unmatched = ((unmatched + hit) | (unmatched - hit)) & full
    return len(one) - unmatched.bit_count()


def _ngrams(words: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))


def _f1(common: int, num_written: int, num_wanted: int) -> float:
    return 2 * common / max(1, num_written + num_wanted)
