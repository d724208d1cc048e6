"""Words beside a vocabulary: those of one text that it doesn't know, with ids of their own."""

from __future__ import annotations

from saccade.data.text.beside import encode_beside, extend_tokenizer
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import SPECIAL, UNKNOWN, Vocabulary, train_tokenizer

WORDS = Vocabulary([*SPECIAL, "the", "of", "from"], "words")
V = WORDS.size


def test_unknown_words_of_a_text_are_numbered_as_they_come_first() -> None:
    own = extend_tokenizer(WORDS, "order 17 from Mara , order 18")
    assert own.encode("order 17 from Mara , order 18") == [V, V + 1, 6, V + 2, V + 3, V, V + 4]
    assert own.size == V + 5
    assert own.encode("the Mara Tom") == [4, V + 2, UNKNOWN]
    assert own.decode([4, V + 2, UNKNOWN, 2]) == "the Mara <unk>"
    assert own.pieces([4, V + 2, 2]) == ["the", "Mara", "</s>"]


def test_a_word_spelled_like_a_special_one_is_a_word_that_can_be_copied() -> None:
    own = extend_tokenizer(WORDS, "the </s> of")
    assert own.encode("</s>") == [V]
    assert own.decode([V]) == "</s>"


def test_both_sides_of_a_pair_know_the_words_of_the_source() -> None:
    assert encode_beside(WORDS, Pair("from Mara", "Mara the Tom")) == ([6, V], [V, 4, UNKNOWN])


def test_characters_too_and_pieces_are_as_they_were() -> None:
    letters = Vocabulary([*SPECIAL, "a", " "], "characters")
    own = extend_tokenizer(letters, "ab a")
    assert own.decode(own.encode("b a")) == "b a"
    pieces = train_tokenizer("unigram", ["a few words to learn from", "and some more words"], 290)
    assert extend_tokenizer(pieces, "words") is pieces
