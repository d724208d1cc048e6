"""Tokenizers: no text is unencodable, what is stored is what was learned."""

from __future__ import annotations

import io
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.text.corpus import clean
from saccade.data.text.tokenizer import (
    END,
    LONGEST,
    PAD,
    SPECIAL,
    START,
    UNKNOWN,
    ListedPieces,
    SentencePiece,
    load_tokenizer,
    read_ready_tokenizer,
    run_seeded,
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
def test_a_vocabulary_is_no_larger_than_the_text_allows_and_says_what_is_the_least(kind: str) -> None:
    assert 260 < train_tokenizer(kind, TEXTS, 90_000).size < 1000
    allowed = r"allowed: (\d+) or more"
    with pytest.raises(UserError, match=rf"^tokenizer\.vocabulary_size: 50 given; {allowed}") as refused:
        train_tokenizer(kind, TEXTS, 50)
    found = re.search(allowed, str(refused.value))
    assert found is not None
    assert train_tokenizer(kind, TEXTS, int(found[1])).size == int(found[1])


@pytest.mark.parametrize("kind", list(KINDS))
def test_blank_lines_teach_nothing(kind: str) -> None:
    with pytest.raises(UserError, match="no text to learn from"):
        train_tokenizer(kind, ["", ""], 300)


REPEATED = {
    "one word on a long line": [*TEXTS, "house " * 8_000],
    "the same lines twice": [*TEXTS, *(made := [f"{a}{b} {b}{a}" for a in range(70) for b in range(14)]), *made, "end"],
}


@pytest.mark.parametrize("texts", REPEATED.values(), ids=list(REPEATED))
def test_what_is_written_twice_is_learned_from_as_fast(texts: list[str]) -> None:
    start = time.process_time()
    tokenizer = train_tokenizer("unigram", texts, 320)
    assert time.process_time() - start < 5  # it took 30 s and more
    assert tokenizer.pieces(tokenizer.encode("the house")) == ["▁the", "▁house"]


def test_a_line_of_more_than_a_megabyte_is_learned_from() -> None:
    tokenizer = train_tokenizer("bpe", [*TEXTS, "elephant " * 120_000], 320)
    assert tokenizer.pieces(tokenizer.encode("the elephant")) == ["▁the", "▁elephant"]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_long_texts_teach_what_their_parts_teach(kind: str) -> None:
    words = [word for text in TEXTS for word in text.split()]
    long = " ".join(words * 9)
    assert len(long) > LONGEST
    whole, parts = (SentencePiece.train(kind, texts, 285, seed=0) for texts in ([long], [long[:500], long[500:]]))
    assert whole.model == parts.model


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


def ready_model(path: Path, **options: Any) -> Path:
    """A SentencePiece model as other programs write them, with their own order of special symbols."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=trained,
        model_type="bpe",
        minloglevel=2,
        vocab_size=45,
        character_coverage=1.0,
        **options,
    )
    path.write_bytes(trained.getvalue())
    return path


@pytest.mark.parametrize(
    "options",
    [
        {},  # <unk> <s> </s>, and no padding
        {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "eos_piece": "<end>"},
        {"unk_id": 5, "bos_id": 1, "eos_id": 0, "pad_id": 7},
        {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3},
    ],
)
def test_special_symbols_of_ready_models_are_mapped(options: dict[str, Any], tmp_path: Path) -> None:
    path = ready_model(tmp_path / "ready.model", **options)
    found = read_ready_tokenizer("unigram", path, "tokenizer")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    for line in TEXTS:
        ids = found.encode(line)
        assert min(ids) > UNKNOWN
        assert max(ids) < found.size
        assert found.pieces(ids) == theirs.encode(line, out_type=str)
        assert found.decode([START, *ids, END, PAD]) == line
    assert found.pieces(range(4)) == list(SPECIAL)
    assert len(set(found.pieces(range(found.size)))) == found.size
    assert found.encode("東")[-1] == UNKNOWN
    assert found.decode(found.encode(f"{TEXTS[0]} 東")) == f"{TEXTS[0]} ⁇"
    found.save(tmp_path / "copy.model")
    assert (tmp_path / "copy.model").read_bytes() == path.read_bytes()
    assert load_tokenizer(tmp_path / "copy.model").encode(TEXTS[0]) == found.encode(TEXTS[0])


def test_ready_lists_of_words_and_characters(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("\ufeff<unk>\nthe\r\nowl\n\n", "utf-8")
    words = read_ready_tokenizer("words", path, "tokenizer")
    assert words.encode("the old owl") == [4, UNKNOWN, 5]
    words.save(tmp_path / "words.json")
    assert read_ready_tokenizer("words", tmp_path / "words.json", "tokenizer").encode("owl") == [5]
    path.write_text("a\n \nb", "utf-8")
    assert read_ready_tokenizer("characters", path, "tokenizer").encode("b a") == [6, 5, 4]


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("bpe", "a.txt", "the\n", r"tokenizer.source.model: .*a.txt is no SentencePiece model; a list .* needs"),
        ("bpe", None, "", r"tokenizer.source.model: there is no file at .*none"),
        ("words", "a.txt", "the\nan owl\n", r"a.txt:2: 'an owl' given; a line must be one word, without spaces"),
        ("words", "a.txt", "the\n\nthe\n", r"a.txt:3: 'the' comes again; it is on line 1 too"),
        ("words", "a.txt", "\n<s>\n", r"a.txt: there is no symbol in it"),
        ("words", "a.json", '{"kind": "characters", "symbols": []}', r"a.json has characters, but .*kind is words"),
        ("characters", "a.txt", "a\nbc\n", r"a.txt:2: 'bc' given; a line must be one character"),
    ],
)
def test_what_is_no_ready_tokenizer_is_refused(
    kind: str, name: str | None, content: str, message: str, tmp_path: Path
) -> None:
    if name is not None:
        (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(UserError, match=message):
        read_ready_tokenizer(kind, tmp_path / (name or "none"), "tokenizer.source")


def listed(**options: Any) -> ListedPieces:
    whole = SentencePiece.train("unigram", ["der alte Hund und die Katze"] * 9, 280, seed=1)
    processor = sentencepiece.SentencePieceProcessor(model_proto=whole.model)
    names = [processor.id_to_piece(number) for number in range(4, processor.vocab_size())]
    symbols = [*SPECIAL, ">>fr<<", *reversed([name for name in names if name != "<0x41>"])]
    return ListedPieces(whole.model, symbols, **options)


def test_listed_pieces_have_the_ids_of_their_list(tmp_path: Path) -> None:
    own = listed()
    ids = own.encode("der Hund")
    assert own.decode(ids) == "der Hund"
    assert [own.symbols[index] for index in ids] == own.pieces(ids)
    assert UNKNOWN not in ids
    assert own.encode("A")[-1] == UNKNOWN  # a byte that is not listed
    assert own.encode("") == []
    own.save(tmp_path / "tokenizer.source.json")
    again = load_tokenizer(tmp_path / "tokenizer.source.json")
    assert isinstance(again, ListedPieces)
    assert (again.model, again.symbols, again.encode("die Katze")) == (own.model, own.symbols, own.encode("die Katze"))


def test_a_language_that_is_listed_is_one_token() -> None:
    own = listed()
    assert own.encode(">>fr<< der")[0] == 4
    assert 4 not in own.encode(">>xx<< der")
    assert own.decode([*own.encode("Hund"), UNKNOWN, END, PAD]) == "Hund"


def test_tokens_that_stand_first() -> None:
    source, target = listed(first=[">>fr<<"]), listed(first=[">>fr<<"], begins_empty=True)
    assert source.encode("") == []
    assert target.encode("") == [4]
    assert source.encode("der") == target.encode("der") == [4, *listed().encode("der")]
    assert target.decode(target.encode("der")) == "der"


def test_listed_pieces_are_drawn_at_random() -> None:
    own = listed()
    draw = own.sampler(0.1)
    drawn = run_seeded(1, lambda: {tuple(draw("der alte Hund und die Katze")) for _ in range(20)})
    assert len(drawn) > 1
    assert {own.decode(ids) for ids in drawn} == {"der alte Hund und die Katze"}


def test_a_damaged_list_is_told(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.source.json"
    listed().save(path)
    path.write_text(path.read_text("utf-8").replace('"model": "', '"model": "#'), "utf-8")
    with pytest.raises(UserError, match=r"tokenizer\.source\.json is damaged: it is no vocabulary"):
        load_tokenizer(path)


def test_an_empty_model_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.touch()
    with pytest.raises(UserError, match="is damaged: it is no SentencePiece model"):
        SentencePiece.load(path)
