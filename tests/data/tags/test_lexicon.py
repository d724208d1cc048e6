"""Words as a tagger reads them: ids, characters, shapes and places."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from saccade.data.tags.columns import TaggedSentence
from saccade.data.tags.lexicon import LONGEST_WORD, MOST_PLACES, Lexicon, normalize_word, word_shape
from saccade.data.text.tokenizer import END, START, UNKNOWN
from saccade.errors import UserError

TEXT = [
    TaggedSentence(("The", "cat", "saw", "the", "CAT", "in", "1997")),
    TaggedSentence(("In", "1998", "it", "slept")),
]
LEXICON = Lexicon.learn(TEXT, ["O", "B-X"], spelling="bio")


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("Paris", "Xxx"),
        ("CRICKET", "XX"),
        ("1996-08-22", "00-00-00"),
        ("McDonald", "XxXxx"),
        ("U.S.", "X.X."),
        ("!!!", "!!"),
    ],
)
def test_shapes(word: str, wanted: str) -> None:
    assert word_shape(word) == wanted


def test_plain_words() -> None:
    assert normalize_word("B2B-Café 19") == "b0b-café00"


def test_words_of_the_text_at_least_twice_are_known() -> None:
    assert LEXICON.words.symbols[4:] == ["0000", "cat", "in", "the"]
    assert LEXICON.counts(TEXT).tolist() == [0, 0, 0, 3, 2, 2, 2, 2]


def test_a_batch_has_every_spelling_once_and_the_places_of_repeated_words() -> None:
    document = [TaggedSentence(("The", "cat")), TaggedSentence(("CAT", "the", "cat"))]
    tokens = LEXICON.tokens([document, [TaggedSentence(("cat", "dog"))]])
    the, cat = LEXICON.words.encode("the cat")
    assert tokens.word_BT.tolist() == [[the, cat, 0], [cat, the, cat], [cat, UNKNOWN, 0]]
    assert tokens.length_B.tolist() == [2, 3, 2]
    assert tokens.character_NC.shape[0] == 5  # The, cat, CAT, the, dog
    assert tokens.spelling_BT.tolist() == [[0, 1, 0], [2, 3, 1], [1, 4, 0]]
    assert tokens.character_NC[1].tolist() == [START, *LEXICON.characters.encode("cat"), END]
    assert tokens.character_length_N.tolist() == [5] * 5
    assert tokens.place_NS.tolist() == [
        [0, 4, 0],
        [1, 3, 5],
    ]  # places in the flat [3, 3]; the other document is another
    assert tokens.place_length_N.tolist() == [2, 3]


def test_many_places_are_cut_into_runs_and_long_words_to_their_ends() -> None:
    tokens = LEXICON.tokens([[TaggedSentence(("a",) * (MOST_PLACES + 3))]])
    assert tokens.place_length_N.tolist() == [MOST_PLACES, 3]
    long = LEXICON.tokens([[TaggedSentence(("c" + "x" * 100 + "t",))]])
    assert long.character_NC.shape == (1, LONGEST_WORD + 2)
    assert long.character_NC[0, -2] == LEXICON.characters.encode("t")[0]


def test_no_repeated_word_no_place() -> None:
    tokens = LEXICON.tokens([[TaggedSentence(("a", "b"))]])
    assert tokens.place_NS.shape[0] == tokens.place_length_N.shape[0] == 0


def test_it_is_stored_and_found_again(tmp_path: Path) -> None:
    (tmp_path / "lexicon.json").write_text(LEXICON.with_words(["Dog", "cat", "dog"]).to_json(), "utf-8")
    found = Lexicon.load(tmp_path / "lexicon.json")
    assert found.words.symbols == [*LEXICON.words.symbols, "dog"]
    assert (found.tags, found.spelling) == (["O", "B-X"], "bio")
    for one, other in zip(found.tokens([TEXT]), LEXICON.tokens([TEXT]), strict=True):
        assert torch.equal(one, other)
    (tmp_path / "lexicon.json").write_text("{", "utf-8")
    with pytest.raises(UserError, match="damaged"):
        Lexicon.load(tmp_path / "lexicon.json")
