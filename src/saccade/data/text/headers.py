"""Tells first lines that name columns from first lines that are data."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from saccade.data.text import languages

NUM_LOOKED_AT = 1000  # lines
FEWEST = 20  # lines that tell
MOST_WORDS = 3  # of a name
MOST_ODD = 0.01  # the share of lines that may be like no other, where a first one that is so is told
ODD = "is this a header? It is learned, though its words never come again; name its columns in data.columns"
NAMES = {
    *("source", "src", "input", "question", "query", "prompt", "text", "sentence", "document", "article", "body"),
    *("target", "tgt", "trg", "output", "answer", "response", "label", "translation", "summary", "headline", "subject"),
    *("word", "lemma", "form", "inflection", "feature", "tag", "grapheme", "spelling", "pronunciation", "phone"),
    *("phoneme", "ipa", "transcription", "transliteration", "command", "action", "instruction", "utterance"),
    *("request", "intent", "slot", "parse", "story", "context", "title", "email", "mail", "message", "review"),
    *("content", "comment", "tweet", "inflected", "class", "category", "topic", "sentiment", "rating", "star"),
    *("original", "correct", "corrected"),
}  # words of names that columns have
LANGUAGES = {*languages.NAMES, *(name.casefold() for name in languages.NAMES.values())}


def is_header(first: Sequence[str]) -> bool:
    """Tell whether a first line is names of columns: `source_text` and `target_text`, but not `form` and `forms`."""
    folded = [field.strip().casefold() for field in first]
    names = [tuple(map(_stem, re.split(r"[\s_-]+", field))) for field in folded]
    return len(set(names)) == len(names) and all(
        field in LANGUAGES or (len(name) <= MOST_WORDS and NAMES.issuperset(name))
        for field, name in zip(folded, names, strict=True)
    )


def is_odd(lines: Iterable[str]) -> bool:
    """Tell whether the first line is short and without a word of the others, where nearly all have one."""
    texts = [set(line.split()) for line in itertools.islice(lines, NUM_LOOKED_AT)]
    counts = Counter(word for words in texts for word in words)
    odd = [0 < len(words) <= MOST_WORDS and all(counts[word] == 1 for word in words) for words in texts]
    return len(odd) >= FEWEST and odd[0] and sum(odd) <= max(1, MOST_ODD * len(odd))


def _stem(word: str) -> str:
    return word if word in NAMES else word.removesuffix("s")
