"""The kind of tokenizer that suits the texts of two sides, and the number of tokens."""

from __future__ import annotations

import random

import pytest

from saccade.data.text.tokenizer_choice import choose_kinds, choose_size

DRAW = random.Random(1)
NEW = ["".join(DRAW.choices("abcdefgh", k=6)) for _ in range(400)]
FEW = [f"P{number}" for number in range(30)]
SOME = NEW[:150]


def texts(num_words: int, words: list[str], joined: str = " ") -> list[str]:
    return [joined.join(DRAW.choices(words, k=num_words)) for _ in range(200)]


HANZI = ["".join(map(chr, DRAW.choices(range(0x4E00, 0x5000), k=4))) for _ in range(200)]
TAGGED = [f"{lemma} V;{tag}" for lemma, tag in zip(NEW, ["PST", "PRS"] * 200, strict=True)]
SPLIT_TAGS = [f"{lemma} V {tag} 3 SG" for lemma, tag in zip(NEW, ["PST", "PRS"] * 200, strict=True)]


@pytest.mark.parametrize(
    ("sources", "targets", "kinds"),
    [
        (NEW[:200], NEW[200:], ("characters", "characters")),  # names
        (TAGGED, NEW, ("characters", "characters")),  # inflection
        (SPLIT_TAGS, NEW, ("characters", "characters")),
        ([f"{NEW[n % 20]} V;{n % 15}" for n in range(300)], NEW[:300], ("characters", "characters")),  # a few lemmas
        (NEW[:200], texts(7, FEW), ("characters", "words")),  # pronunciation
        (NEW[:200], texts(9, SOME), ("characters", "unigram")),  # definitions
        (texts(8, FEW), texts(12, FEW), ("words", "words")),  # commands
        (texts(12, SOME), texts(1, FEW[:9]), ("unigram", "words")),  # answers
        (texts(12, SOME), texts(12, FEW), ("unigram", "words")),  # tags
        (texts(12, NEW), NEW, ("unigram", "unigram")),  # a word of the sentence
        (texts(12, NEW), texts(12, NEW), ("unigram", "unigram")),
        (HANZI, texts(4, SOME), ("characters", "unigram")),  # how words without spaces are said
        (texts(4, SOME), HANZI, ("unigram", "characters")),
        (texts(12, ["我们", "喜欢", "书"], ""), texts(12, NEW), ("unigram", "unigram")),
        ([], [], ("unigram", "unigram")),
        (["a b"] * 9, ["b a"] * 9, ("unigram", "unigram")),  # too few to tell
    ],
)
def test_the_kind_suits_the_texts(sources: list[str], targets: list[str], kinds: tuple[str, str]) -> None:
    assert choose_kinds(sources, targets) == kinds


def test_a_vocabulary_grows_with_the_text_up_to_a_bound() -> None:
    sample = texts(10, NEW)  # 2,000 words
    assert choose_size("unigram", sample, len(sample)) == 520
    assert choose_size("bpe", sample, 100 * len(sample)) == 2500
    assert choose_size("unigram", sample, 10**7) == choose_size("words", sample, 200) == 8000
    assert choose_size("unigram", [*sample, *map(chr, range(0x4E00, 0x4E00 + 1000))], 1200) > 2 * 1000
