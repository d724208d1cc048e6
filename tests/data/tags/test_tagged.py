"""Tagged files: schemes found, tags repaired with a count and a place, documents through several files."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.data.tags import tagged
from saccade.data.tags.columns import TagColumns, TaggedSentence
from saccade.data.tags.tagged import detect_file_scheme, read_tagged, repair_files, split_documents, tag_set
from saccade.errors import UserError


def write(folder: Path, **texts: str) -> str:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, "utf-8")
    return str(folder)


def test_documents_count_through_all_files(tmp_path: Path) -> None:
    pattern = write(tmp_path, a="-DOCSTART- O\n\na O\n\nb O\n", b="-DOCSTART- O\n\nc O\n")
    files = read_tagged("data.train", pattern, TagColumns())
    sentences = [one for file in files for one in file.sentences]
    assert [one.document for one in sentences] == [0, 0, 1]
    assert [[one.words for one in group] for group in split_documents(sentences)] == [[("a",), ("b",)], [("c",)]]
    with pytest.raises(UserError, match=r"data\.valid: there is no file at"):
        read_tagged("data.valid", str(tmp_path / "none"), TagColumns())


def test_long_documents_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged, "LONGEST_DOCUMENT", 2)
    assert [len(part) for part in split_documents([TaggedSentence(("a",))] * 5)] == [2, 2, 1]


def test_tags_are_repaired_counted_and_spelled_anew(tmp_path: Path) -> None:
    pattern = write(tmp_path, a="a B-X\nb I-X\n\nc O\nd I-X\ne I-Y\n\nf B-Y\n")
    files = read_tagged("data.train", pattern, TagColumns())
    assert detect_file_scheme(files) == "bio"
    found = repair_files(files, "bio", "bioes")
    assert [one.tags for one in found.sentences] == [("B-X", "E-X"), ("O", "S-X", "S-Y"), ("S-Y",)]
    assert found.num_repaired == 2
    assert found.first_repaired == f"{tmp_path}/a.txt:5"
    assert tag_set(found.sentences, "bioes") == ["O", *(f"{part}-{kind}" for kind in "XY" for part in "BIES")]


def test_iob1_needs_no_repair_and_parts_of_speech_are_left_alone(tmp_path: Path) -> None:
    files = read_tagged("x", write(tmp_path, a="a I-X\nb B-X\nc O\n"), TagColumns())
    assert detect_file_scheme(files) == "iob1"
    found = repair_files(files, "iob1", "bio")
    assert (found.sentences[0].tags, found.num_repaired) == (("B-X", "B-X", "O"), 0)
    files = read_tagged("x", write(tmp_path, a="a NN\nb VB\n"), TagColumns())
    assert detect_file_scheme(files) is None
    found = repair_files(files, None, "bioes")
    assert found.sentences[0].tags == ("NN", "VB")
    assert tag_set(found.sentences, None) == ["NN", "VB"]


@pytest.mark.parametrize("tag", ["X", "B-", "S-X", "-X", "BI-X"])
def test_tags_that_a_scheme_does_not_have_are_named(tmp_path: Path, tag: str) -> None:
    files = read_tagged("x", write(tmp_path, a=f"a O\n\nb O\nc {tag}\n"), TagColumns())
    with pytest.raises(UserError, match=rf"a.txt:4: the tag is '{tag}'; allowed in bio: O, or one of B, I"):
        repair_files(files, "bio", "bio")
