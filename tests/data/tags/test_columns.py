"""CoNLL columns: tabs or spaces, blank lines, documents, and every mistake with its file and line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from saccade.data.tags.columns import (
    TagColumns,
    TaggedSentence,
    format_sentence,
    looks_like_columns,
    parse_sentences,
    read_columns,
    read_paired,
)
from saccade.errors import UserError

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER

-DOCSTART- -X- -X- O

London NNP B-NP B-LOC"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_words_tags_documents_and_lines(tmp_path: Path) -> None:
    first, second, third = read_columns(write(tmp_path / "a.txt", CONLL))
    assert first[:4] == (("EU", "rejects"), ("B-ORG", "O"), 0, 3)
    assert second[:4] == (("Peter",), ("B-PER",), 0, 6)
    assert third[:4] == (("London",), ("B-LOC",), 1, 10)


def test_windows_lines_gzip_tabs_and_many_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress("\ufeffNew York\tO\r\n\r\n  \r\n\r\nx\tB-Y\r\n".encode()))
    first, second = read_columns(path)
    assert first[:4] == (("New York",), ("O",), 0, 1)
    assert second[:4] == (("x",), ("B-Y",), 1, 5)  # without -DOCSTART-, a document of its own


def test_other_columns(tmp_path: Path) -> None:
    (found, *_) = read_columns(write(tmp_path / "a.txt", CONLL), TagColumns(0, 1))
    assert found.tags == ("NNP", "VBZ")
    assert [one.tags for one in parse_sentences("x", ["a b", "c d"], TagColumns(1, None))] == [()]
    assert [one.words for one in parse_sentences("x", ["a b", "c d"], TagColumns(1, None))] == [("b", "d")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.txt: there is no sentence in it"),
        ("-DOCSTART- O\n", "a.txt: there is no sentence in it"),
        ("a O\nb c O\n", "a.txt:2: the line has 3 columns; the lines before have 2"),
        ("a O\n\nb\n", "a.txt:3: the line has 1 column; the lines before have 2"),
        ("a\n", "a.txt:1: the line has 1 column; there must be a word and a tag"),
        ("a\tO\nb\t\n", "a.txt:2: the tag is empty"),
        ("\tO\n", "a.txt:1: the word is empty"),
    ],
)
def test_mistakes_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_columns(write(tmp_path / "a.txt", text))


def test_missing_columns_files_and_bad_bytes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a.txt:1: the line has 2 columns; there is no column 3 for the tag"):
        read_columns(write(tmp_path / "a.txt", "a O\n"), TagColumns(0, 3))
    with pytest.raises(UserError, match="there is no file at"):
        read_columns(tmp_path / "missing.txt")
    (tmp_path / "b.txt").write_bytes(b"a O\n\xff O\n")
    with pytest.raises(UserError, match=r"b.txt:2: this is not UTF-8"):
        read_columns(tmp_path / "b.txt")


def test_columns_are_told_from_sentences() -> None:
    assert looks_like_columns("London\tX", ["O"])
    assert looks_like_columns("-DOCSTART- -X-", ["O"])
    assert looks_like_columns("London NNP B-LOC", ["O", "B-LOC"])
    assert not looks_like_columns("He lives in London", ["O", "B-LOC"])
    assert not looks_like_columns("O", ["O"])


def test_what_is_written_is_read_again() -> None:
    text = format_sentence(["New York", "a"], ["B-LOC", "O"])
    assert text == "New York\tB-LOC\na\tO\n"
    (found,) = parse_sentences("x", text.splitlines())
    assert found[:2] == (("New York", "a"), ("B-LOC", "O"))


SENTENCES = [TaggedSentence(("a", "b"), ("O", "B-X")), TaggedSentence(("c",), ("O",))]


def test_jsonl_and_paired_files_read_as_columns_do(tmp_path: Path) -> None:
    rows = (
        '{"tokens": ["a", "b"], "tags": ["O", "B-X"], "pos": [1, 2]}\n\n{"tokens": ["c"], "tags": ["O"], "pos": [3]}\n'
    )
    path = write(tmp_path / "a.jsonl", rows)
    words, tags = write(tmp_path / "a.words", "a b\n\nc\n"), write(tmp_path / "a.tags", "O B-X\n\nO\n")
    for found in (read_columns(path), read_paired(words, tags)):
        assert [one[:2] for one in found] == [one[:2] for one in SENTENCES]
        assert [(one.document, one.line, one.is_one_line) for one in found] == [(0, 1, True), (1, 3, True)]
    with_features = read_columns(path, TagColumns("tokens", "tags", ("pos",)))
    assert [one.features for one in with_features] == [(("1", "2"),), (("3",),)]
    assert read_columns(path, TagColumns("tokens", "pos"))[0][:2] == (("a", "b"), ("1", "2"))


def test_named_columns_and_features(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "pos\ttag\tform\nDT\tO\ta\nNN\tB-X\tb\n\nDT\tO\tc\n")
    found = read_columns(path, TagColumns("form", "tag", ("pos",)))
    assert [one[:2] for one in found] == [one[:2] for one in SENTENCES]
    assert [one.features for one in found] == [(("DT", "NN"),), (("DT",),)]
    assert [one.line for one in found] == [2, 5]
    by_number = read_columns(write(tmp_path / "b", "a DT O\nb NN B-X\n"), TagColumns(0, -1, (1,)))
    assert by_number[0].features == (("DT", "NN"),)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1]\n", r"a\.jsonl:1: this is not an object like"),
        ('{"tokens": ["a"]}\n', r"a\.jsonl:1: there is no key 'tags' for the tag; there is tokens"),
        ('{"tokens": ["a"], "tags": "O"}\n', r"a\.jsonl:1: 'tags' must be a list of strings or whole numbers"),
        ('{"tokens": ["a"], "tags": ["O", "O"]}\n', r"a\.jsonl:1: 2 in 'tags' for 1 words"),
        ('{"tokens": [" "], "tags": ["O"]}\n', r"a\.jsonl:1: 'tokens' has an empty string"),
        ("\n", r"a\.jsonl: there is no sentence in it"),
    ],
)
def test_wrong_jsonl(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_columns(write(tmp_path / "a.jsonl", content))


def test_wrong_pairs_names_and_headers(tmp_path: Path) -> None:
    words = write(tmp_path / "w", "a b\nc\n")
    with pytest.raises(UserError, match=r"t:1: 1 tags for 2 words; there must be one for each"):
        read_paired(words, write(tmp_path / "t", "O\nO\n"))
    with pytest.raises(UserError, match=r"t ends after 1 lines, .*w goes on"):
        read_paired(words, write(tmp_path / "t", "O O\n"))
    with pytest.raises(UserError, match=r"h:1: no column 'ner' for the tag in its header: word, tag"):
        read_columns(write(tmp_path / "h", "word tag\na O\n"), TagColumns("word", "ner"))
    with pytest.raises(
        UserError, match=r"h:1: this looks like a header; give the columns' names \(data.word_column: word"
    ):
        read_columns(tmp_path / "h")
    for columns in (TagColumns(), TagColumns(tag=None)):
        with pytest.raises(UserError, match=r"h:1: this looks like a header"):
            list(parse_sentences("h", ["word pos tag\n", "a DT O\n"], columns))
    with pytest.raises(UserError, match=r"a.csv: tagged sentences are not read from CSV; allowed: columns with tabs"):
        read_columns(write(tmp_path / "a.csv", "a,O\n"))
