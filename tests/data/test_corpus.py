"""Corpora: what is read, and every way a file can be wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from saccade.data.corpus import Corpus, Pair, clean
from saccade.data.mistakes import Mistake


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return str(path)


def test_aligned_files_plain_and_gzip(tmp_path: Path) -> None:
    source = write(tmp_path, "a.en", "\ufeffone\u00a0 two\r\n\r\nthree")
    target = write(tmp_path, "a.de.gz", "eins zwei\n\ndrei\n")
    assert list(Corpus(source, target).pairs()) == [("one two", "eins zwei"), ("", ""), ("three", "drei")]


def test_tsv_and_jsonl(tmp_path: Path) -> None:
    tsv = write(tmp_path, "a.tsv", "ein Haus\ta house\r\n")
    jsonl = write(tmp_path, "b.jsonl.gz", '{"source": "ein Haus", "target": "a house", "id": 3}\n')
    assert list(Corpus(tsv).pairs()) == list(Corpus(jsonl).pairs()) == [Pair("ein Haus", "a house")]


def test_shards_by_folder_and_glob(tmp_path: Path) -> None:
    for index in (2, 1):
        write(tmp_path, f"part{index}.en", f"s{index}\n")
        write(tmp_path, f"part{index}.de", f"t{index}\n")
    corpus = Corpus(str(tmp_path / "*.en"), str(tmp_path / "*.de"))
    assert list(corpus.pairs()) == [("s1", "t1"), ("s2", "t2")]
    assert len(corpus.files()) == 4
    assert len(Corpus(str(tmp_path)).files()) == 4


def test_composed_characters_are_one_spelling() -> None:
    assert clean("u\u0308ber\u2003\tall ") == "über all"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.en": "x\n"}, r"target: there is no file at .*a\.de"),
        ({"a.en": "x\ny\n", "a.de": "x\n"}, r"a\.de ends after 1 lines, .*a\.en goes on: .* same number of lines"),
        ({"a.en": b"x\nb\xff\n", "a.de": "x\ny\n"}, r"a\.en:2: not UTF-8 \(byte 2 of the line"),
    ],
)
def test_mistakes_in_aligned_files(files: dict[str, str | bytes], message: str, tmp_path: Path) -> None:
    for name, content in files.items():
        write(tmp_path, name, content)
    with pytest.raises(Mistake, match=message):
        list(Corpus(str(tmp_path / "a.en"), str(tmp_path / "a.de")).pairs())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "x\ty\nx\n", r"a\.tsv:2: 1 columns; there must be two"),
        ("a.jsonl", '{"source": "x"}\n', r"a\.jsonl:1: not an object like"),
        ("a.jsonl", '{"source": "x", "target": 3}\n', r"a\.jsonl:1: source and target must be strings"),
        ("a.txt", "x\n", r"a\.txt: one file with both sides must end in \.tsv or \.jsonl"),
    ],
)
def test_mistakes_in_files_with_both_sides(name: str, content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=message):
        list(Corpus(write(tmp_path, name, content)).pairs())


def test_a_broken_gzip_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"line\n" * 1000)
    (tmp_path / "a.en.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Mistake, match=r"a\.en\.gz: not a whole gzip file"):
        list(Corpus(str(tmp_path / "a.en.gz"), str(tmp_path / "a.en.gz")).pairs())
