"""Word vectors: GloVe, word2vec and fastText text, and every way a file can be wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from saccade.data.text.vectors import read_vectors
from saccade.errors import UserError

GLOVE = "the 0.5 -1 2e-1\n. . . 1 2 3\nthe 9 9 9\n"


def test_glove_has_no_header_and_words_with_spaces(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(GLOVE, "utf-8")
    found = read_vectors(path)
    assert found.words == ["the", ". . ."]
    assert found.num_repeated == 1
    np.testing.assert_allclose(found.table_VD, np.array([[0.5, -1, 0.2], [1, 2, 3]], np.float32))
    assert found.table_VD.dtype == np.float32


def test_word2vec_and_fasttext_have_a_header_and_trailing_spaces(tmp_path: Path) -> None:
    path = tmp_path / "vectors.vec.gz"
    path.write_bytes(gzip.compress(b"2 3\r\na 1 2 3 \r\nb 4 5 6 \r\n"))
    found = read_vectors(path)
    assert found.words == ["a", "b"]
    np.testing.assert_allclose(found.table_VD, [[1, 2, 3], [4, 5, 6]])
    assert read_vectors(path, most=1).words == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "v.txt: there is no vector in it"),
        ("2 3\n", "v.txt: there is no vector in it"),
        ("a\n", "v.txt:1: the line has 0 numbers; there must be some behind the word"),
        ("a 1 2\nb 1\n", "v.txt:2: the line has 1 numbers; there must be 2, as on the first line"),
        ("a 1 2\n\n", "v.txt:2: the line has 0 numbers; there must be 2"),
        ("a 1 2\nb 1 x\n", "v.txt:2: 'x' is not a number; there must be 2 behind the word"),
        ("a 1 nan\n", "v.txt:1: a number is infinite, too large or not a number"),
        ("3 2\na 1 2\nb 1 2\n", "v.txt: it has 2 vectors, but its first line says 3"),
    ],
)
def test_mistakes_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "v.txt").write_text(text, "utf-8")
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / "v.txt")
