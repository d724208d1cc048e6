"""Grown vocabularies: old tokens stay, new ones join what stood side by side."""

from __future__ import annotations

import random

import pytest
import sentencepiece

from saccade.data.text.grow import grow
from saccade.data.text.tokenizer import UNKNOWN, SentencePiece, Vocabulary, train_tokenizer

PHRASE = "the old dog and the little cat sleep in the house but the tree stands alone"
OLD = PHRASE.split()
NEW = [*OLD[:4], "Quitten", "doghouse", "treehouse", "naïve", "日本", "42", "sleep."]


def sentences(words: list[str], seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(2, 7))) for _ in range(61)]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def old(request: pytest.FixtureRequest) -> SentencePiece:
    found = train_tokenizer(request.param, sentences(OLD, 1), 297, seed=1)
    assert isinstance(found, SentencePiece)
    return found


def test_new_pieces_shorten_new_texts_and_leave_others(old: SentencePiece) -> None:
    new = sentences(NEW, 2)
    few, more = (grow(old, new, count) for count in (5, 23))
    lengths = [sum(len(one.encode(text)) for text in new) for one in (old, few.tokenizer, more.tokenizer)]
    assert lengths[0] > lengths[1] > lengths[2]
    assert lengths[0] > 2 * lengths[2]
    assert (len(few.parts), few.tokenizer.size, more.tokenizer.size) == (5, old.size + 5, old.size + 23)
    for text in new:
        ids = more.tokenizer.encode(text)
        spelled = [part for own in ids for part in ([own] if own < old.size else more.parts[own - old.size])]
        assert spelled == old.encode(text)
        assert more.tokenizer.decode(ids) == text
    assert more.tokenizer.pieces(range(old.size)) == old.pieces(range(old.size))


def test_each_new_piece_is_what_its_parts_spell_and_no_more_than_one_kind_of_sign(old: SentencePiece) -> None:
    grown = grow(old, sentences(NEW, 2), 31)
    pieces = grown.tokenizer.pieces(range(old.size, grown.tokenizer.size))
    assert "▁Quitten" in pieces
    assert {"ï", "日", "本"} <= {piece.removeprefix("▁") for piece in pieces}
    for piece, parts in zip(pieces, grown.parts, strict=True):
        assert old.decode(parts) == piece.removeprefix("▁")
    assert not any("." in piece and len(piece) > 1 for piece in pieces)


def test_bpe_joins_new_pieces_after_all_old_ones() -> None:
    old = train_tokenizer("bpe", sentences(OLD, 1), 297, seed=1)
    assert isinstance(old, SentencePiece)
    grown = grow(old, sentences(NEW, 2), 23).tokenizer
    assert isinstance(grown, SentencePiece)
    processor = sentencepiece.SentencePieceProcessor(model_proto=grown.model)
    scores = [processor.get_score(number) for number in range(grown.size)]
    assert scores[old.size :] == [min(scores[: old.size]) - number for number in range(1, 24)]


def test_growing_is_repeatable_and_stops_where_texts_have_no_more(old: SentencePiece) -> None:
    new = sentences(NEW, 2)
    one, other = (grow(old, new, 11) for _ in range(2))
    assert isinstance(one.tokenizer, SentencePiece)
    assert isinstance(other.tokenizer, SentencePiece)
    assert one.tokenizer.model == other.tokenizer.model
    assert 0 < len(grow(old, new, 5000).parts) < 5000
    assert grow(old, ["the cat"], 100).parts == []


def test_a_piece_longer_than_a_byte_can_count(old: SentencePiece) -> None:
    text = "Quitten" * 30
    grown = grow(old, [text] * 2, 5000)
    assert len(grown.tokenizer.encode(text)) == 1
    assert grown.tokenizer.decode(grown.tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_symbols_that_were_unknown(kind: str) -> None:
    old = Vocabulary(["<pad>", "<s>", "</s>", "<unk>", "a", "b"], kind)
    grown = grow(old, ["c a c d", "c d e"], 2)
    symbols = ["c", "d"] if kind == "words" else [" ", "c"]
    assert grown.tokenizer.pieces(range(grown.tokenizer.size)) == [*old.symbols, *symbols]
    assert grown.parts == [[UNKNOWN], [UNKNOWN]]
