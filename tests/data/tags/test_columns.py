"""CoNLL columns: tabs or spaces, blank lines, documents, and every mistake with its file and line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from saccade.data.tags.columns import TagColumns, format_sentence, looks_like_columns, parse_sentences, read_columns
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
    assert first == (("EU", "rejects"), ("B-ORG", "O"), 0, 3)
    assert second == (("Peter",), ("B-PER",), 0, 6)
    assert third == (("London",), ("B-LOC",), 1, 10)


def test_windows_lines_gzip_tabs_and_many_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress("\ufeffNew York\tO\r\n\r\n  \r\n\r\nx\tB-Y\r\n".encode()))
    first, second = read_columns(path)
    assert first == (("New York",), ("O",), 0, 1)
    assert second == (("x",), ("B-Y",), 1, 5)  # without -DOCSTART-, a document of its own


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
