"""Tokenizers: no text is unencodable, what is stored is what was learned."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.corpus import clean
from saccade.data.mistakes import Mistake
from saccade.data.tokenizer import SPECIAL, UNKNOWN, file_name, load_tokenizer, train_tokenizer

TEXTS = [f"{a} {b} {c}" for a in ("the", "a") for b in ("red", "small", "old") for c in ("house", "horse", "mouse")]
KINDS = {"unigram": 278, "bpe": 285, "characters": 40, "words": 40}
TOKENIZERS = {kind: train_tokenizer(kind, TEXTS, size) for kind, size in KINDS.items()}


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_was_learned_comes_back(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert len(tokenizer.pieces(ids)) == len(ids)
        assert min(ids) > UNKNOWN
        assert max(ids) < tokenizer.size


@given(st.text().map(clean))
def test_sentencepiece_encodes_any_text(text: str) -> None:
    for kind in ("unigram", "bpe"):
        ids = TOKENIZERS[kind].encode(text)
        assert UNKNOWN not in ids
        assert TOKENIZERS[kind].decode(ids) == text.replace("▁", " ").strip()


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_first_ids_mean_the_same_everywhere(kind: str) -> None:
    assert TOKENIZERS[kind].pieces(range(4)) == list(SPECIAL)
    assert TOKENIZERS[kind].decode([1, 0, 2]) == ""


@pytest.mark.parametrize("kind", list(KINDS))
def test_stored_and_loaded_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[kind]
    path = tmp_path / file_name(tokenizer, "source")
    tokenizer.save(path)
    loaded = load_tokenizer(path)
    assert [loaded.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]


def test_unknown_words_show() -> None:
    tokenizer = TOKENIZERS["words"]
    assert tokenizer.decode(tokenizer.encode("the blue house")) == "the <unk> house"


def test_a_vocabulary_too_large_is_named() -> None:
    with pytest.raises(Mistake, match=r"tokenizer: SentencePiece could not learn 90000 pieces"):
        train_tokenizer("unigram", TEXTS, 90_000)
