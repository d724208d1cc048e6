"""Tokenizers: no text is unencodable, what is stored is what was learned."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.text.corpus import clean
from saccade.data.text.tokenizer import (
    SPECIAL,
    UNKNOWN,
    load_tokenizer,
    sample_texts,
    tokenizer_file_name,
    train_tokenizer,
)
from saccade.errors import UserError

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


STRANGE = ["<s>", "</s>", "<unk>", "<pad>", "<0x41>", "▁", "⁇", "\x00", "\n", "\u200b", "\u2028", "the", " ", "😀"]
ANY_TEXT = st.text() | st.lists(st.sampled_from(STRANGE)).map("".join)


@given(ANY_TEXT.map(clean))
def test_sentencepiece_encodes_any_text(text: str) -> None:
    for kind in ("unigram", "bpe"):
        ids = TOKENIZERS[kind].encode(text)
        assert min(ids, default=UNKNOWN + 1) > UNKNOWN
        assert TOKENIZERS[kind].decode(ids) == clean(text.replace("▁", " "))


@given(ANY_TEXT.map(clean))
def test_symbols_come_back_or_show_as_unknown(text: str) -> None:
    for kind, symbols, glue in (("words", text.split(), " "), ("characters", list(text), "")):
        known = TOKENIZERS[kind].pieces(range(4, TOKENIZERS[kind].size))
        ids = TOKENIZERS[kind].encode(text)
        assert min(ids, default=UNKNOWN) >= UNKNOWN
        wanted = glue.join(symbol if symbol in known else "<unk>" for symbol in symbols)
        assert TOKENIZERS[kind].decode(ids) == wanted


@given(st.lists(st.integers(0, 277)))
def test_whatever_a_model_writes_is_one_line(ids: list[int]) -> None:
    text = TOKENIZERS["unigram"].decode(ids)
    assert text == " ".join(text.split())


def test_a_word_spelled_like_a_special_one_is_text() -> None:
    tokenizer = train_tokenizer("words", ["a </s> b", "</s>"], 9)
    assert tokenizer.decode(tokenizer.encode("a </s> b <s>")) == "a </s> b <unk>"


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_first_ids_mean_the_same_everywhere(kind: str) -> None:
    assert TOKENIZERS[kind].pieces(range(4)) == list(SPECIAL)
    assert TOKENIZERS[kind].decode([1, 0, 2]) == ""


@pytest.mark.parametrize("kind", list(KINDS))
def test_stored_and_loaded_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[kind]
    path = tmp_path / tokenizer_file_name(kind, "source")
    tokenizer.save(path)
    loaded = load_tokenizer(path)
    assert [loaded.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]


def test_unknown_words_show() -> None:
    tokenizer = TOKENIZERS["words"]
    assert tokenizer.decode(tokenizer.encode("the blue house")) == "the <unk> house"


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize(("size", "allowed"), [(90_000, r"allowed: (\d+) or fewer"), (50, r"allowed: (\d+) or more")])
def test_a_vocabulary_too_large_or_small_says_what_is_allowed(kind: str, size: int, allowed: str) -> None:
    with pytest.raises(UserError, match=rf"^tokenizer\.vocabulary_size: {size:,} given; {allowed}") as refused:
        train_tokenizer(kind, TEXTS, size)
    found = re.search(allowed, str(refused.value))
    assert found is not None
    assert train_tokenizer(kind, TEXTS, int(found[1])).size == int(found[1])


@pytest.mark.parametrize("kind", list(KINDS))
def test_blank_lines_teach_nothing(kind: str) -> None:
    with pytest.raises(UserError, match="no text to learn from"):
        train_tokenizer(kind, ["", ""], 300)


def test_a_sample_is_fair_and_the_same_for_the_same_seed() -> None:
    texts = [f"{number:03}" for number in range(1000)]
    assert sample_texts(["", *texts], most=3000) == (texts, 1000)
    chosen = sample_texts(texts, most=300, seed=1)
    assert chosen == sample_texts(iter(texts), most=300, seed=1)
    assert chosen.num_seen == 1000
    assert 30 < len(set(chosen.texts)) == len(chosen.texts) <= 100
    counts = Counter(text for seed in range(400) for text in sample_texts(texts, most=300, seed=seed).texts)
    late = sum(counts[text] for text in texts[500:]) / counts.total()
    assert 0.48 < late < 0.52
