"""Texts in sentences and back: where they end, and that no white space is lost."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.text.sentences import join, split, split_long, tell_texts


def texts(text: str, **options: int) -> list[str]:
    return [sentence.text for sentence in split(text, **options)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("Mr. Smith met Dr. J. K. Rowling. She waved.", ["Mr. Smith met Dr. J. K. Rowling.", "She waved."]),
        ("It costs 3.5 euros. Cheap!", ["It costs 3.5 euros.", "Cheap!"]),
        ("See e.g. this one. M. Dupont dort.", ["See e.g. this one.", "M. Dupont dort."]),
        ("Wait... what? Yes.", ["Wait... what?", "Yes."]),
        ("a line\nanother line", ["a line", "another line"]),
        ("你好。世界！好", ["你好。", "世界！", "好"]),
        ("«Oui.» Il dort.", ["«Oui.»", "Il dort."]),
        ("", [""]),
        (" \n ", [""]),
    ],
)
def test_where_sentences_end(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


SIGNS = st.text(alphabet=st.sampled_from(list(" \n\t\u00a0\u3000\u2028.!?…。\"'”)aB1,\x00\u202e")), max_size=80)


@given(text=st.one_of(st.text(max_size=80), SIGNS), max_bytes=st.integers(4, 30))
def test_joined_again_they_are_the_text(text: str, max_bytes: int) -> None:
    sentences = split(text, max_bytes)
    assert join(sentences, [sentence.text for sentence in sentences]) == text
    assert all(len(sentence.text.encode("utf-8", "replace")) <= max_bytes for sentence in sentences)
    assert all(sentence.text == sentence.text.strip() for sentence in sentences)


def test_white_space_stays_around_translations() -> None:
    sentences = split("  One.\n\n\tTwo.   Three \n")
    assert join(sentences, ["1", "2", "3"]) == "  1\n\n\t2   3 \n"


def test_long_sentences_are_cut_where_it_hurts_least() -> None:
    assert texts("aaaa bbbb, cccc dddd", max_bytes=14) == ["aaaa bbbb,", "cccc dddd"]
    assert texts("aaaa bbbb cccc dddd", max_bytes=12) == ["aaaa bbbb", "cccc dddd"]
    assert texts("x" * 10, max_bytes=4) == ["xxxx", "xxxx", "xx"]
    assert texts("日本語" * 2, max_bytes=9) == ["日本語", "日本語"]


@pytest.mark.parametrize("sign", [".", " ", "\n", ". ", "a.", '"', '."', "。", "a ", "…’", "\r", ",", ".\u3000"])
def test_no_text_takes_long(sign: str) -> None:
    started = time.process_time()
    split(sign * (200_000 // len(sign)))
    assert time.process_time() - started < 5  # quadratic would be minutes


@given(st.text(alphabet="ab .!?\n\u3000", max_size=80), st.integers(1, 20))
def test_a_long_text_is_split_into_parts_that_fit_and_lose_nothing(text: str, most: int) -> None:
    parts = split_long(text, lambda part: len(part.split()), most)
    assert join(parts, [part.text for part in parts]) == text
    if len(text.split()) <= most:
        assert len(parts) == 1
    assert all(len(part.text.split()) <= most or len(split(part.text)) == 1 for part in parts)


def test_a_part_has_as_many_sentences_as_fit() -> None:
    parts = split_long("One two. Three four. Five.", lambda part: len(part.split()), 4)
    assert [part.text for part in parts] == ["One two. Three four.", "Five."]


@pytest.mark.parametrize(
    ("texts", "have_languages", "expected"),
    [
        (["A cat. It sleeps.", "A dog. It eats.", "One."], False, "documents"),
        (["A cat. It sleeps.", "A dog. It eats.", "One."], True, "documents"),
        (["Who is it?", "A cat sleeps.", "jump"], False, "sentences"),
        (["Who is it?"] * 9 + ["Ann is here. Who is it?"], False, "anything"),  # an answer needs both
        (["Who is it?"] * 9 + ["Ann is here. Who is it?"], True, "sentences"),
        (["jump twice", "walk left", "Run!"], True, "sentences"),
        (["jump twice", "walk left", "Run!"], False, "anything"),
        (["mouse", "house"], False, "anything"),
        ([], False, "anything"),
    ],
)
def test_texts_are_told_by_their_sentences(texts: list[str], have_languages: bool, expected: str) -> None:
    assert tell_texts(texts, have_languages=have_languages) == expected
