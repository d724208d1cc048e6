"""Corpora: what is read, and every way a file can be wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.text.corpus import Corpus, Pair, PairColumns, PartOfPairs, Side, clean, read_lines, read_side
from saccade.errors import UserError


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


ODD = "\u2028\u2029\u0085\u00a0\u3000\u200a\v\f\x1c\x1d\x1e\x1f\t\r"


@given(st.text(st.characters(codec="utf-8") | st.sampled_from(ODD)))
def test_cleaned_text_is_one_line_and_stays_as_it_is(text: str) -> None:
    assert clean(clean(text)) == clean(text)
    assert clean(text).split() == clean(text).split(" ") or not clean(text)


def test_half_a_character_from_a_program_is_no_crash() -> None:
    assert clean("a \ud800 b") == "a ? b"


@pytest.mark.parametrize("odd", ODD)
def test_only_a_line_feed_ends_a_line(odd: str, tmp_path: Path) -> None:
    source = write(tmp_path, "a.en", f"one{odd}two\n{odd}\nthree{odd}\r\n")
    target = write(tmp_path, "a.de.gz", "eins\nzwei\ndrei\n")
    assert list(Corpus(source, target).pairs()) == [("one two", "eins"), ("", "zwei"), ("three", "drei")]
    if odd != "\t":
        tsv = write(tmp_path, "a.tsv", f"\ufeffone{odd}two\teins{odd}\r\n")
        assert list(Corpus(tsv).pairs()) == [("one two", "eins")]
    jsonl = write(tmp_path, "a.jsonl", "\ufeff" + json.dumps({"source": f"one{odd}two", "target": "eins"}) + "\r\n")
    assert list(Corpus(jsonl).pairs()) == [("one two", "eins")]


def test_the_place_of_a_pair(tmp_path: Path) -> None:
    for name, count in (("part1.en", 2), ("part2.en", 1), ("part3.en", 3), ("all.de", 6)):
        write(tmp_path, name, "x\n" * count)
    corpus = Corpus(str(tmp_path / "*.en"), str(tmp_path / "all.de"))
    places = [Path(corpus.place(row, 0)).name for row in range(6)]
    assert places == ["part1.en:1", "part1.en:2", "part2.en:1", "part3.en:1", "part3.en:2", "part3.en:3"]
    assert corpus.place(4, 1) == f"{tmp_path / 'all.de'}:5"
    assert Corpus(write(tmp_path, "a.tsv", "x\ty\n")).place(0, 1) == f"{tmp_path / 'a.tsv'}:1"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.en": "x\n"}, r"^data\.valid\.target: there is no file at .*a\.de$"),
        ({"a.en": "", "a.de": ""}, r"a\.en: it is empty; there must be at least one line$"),
        ({"a.en": "x\ny\n", "a.de": "x\n"}, r"a\.de ends after 1 lines, .*a\.en goes on: .* same number of lines"),
        ({"a.en": b"x\nb\xff\n", "a.de": "x\ny\n"}, r"a\.en:2: this is not UTF-8 \(byte 2 of the line"),
    ],
)
def test_mistakes_in_aligned_files(files: dict[str, str | bytes], message: str, tmp_path: Path) -> None:
    for name, content in files.items():
        write(tmp_path, name, content)
    with pytest.raises(UserError, match=message):
        list(Corpus(str(tmp_path / "a.en"), str(tmp_path / "a.de"), "data.valid").pairs())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "x\ty\nx\n", r"a\.tsv:2: the line has 1 column, but the target is in column 1 from 0"),
        ("a.tsv", "x\n", r"a\.tsv:1: the line has 1 column; there must be two, source and target, or a header"),
        ("a.tsv", "x\ty\tz\n", r"a\.tsv:1: the line has 3 columns \(x, y, z\); there must be two"),
        ("a.tsv", b"x\ty\n\xe4\ty\n", r"a\.tsv:2: this is not UTF-8"),
        ("a.tsv", "", r"a\.tsv: it is empty"),
        ("a.jsonl", '{"source": "x", "target": "y"}\n[' + "[" * 100_000, r"a\.jsonl:2: this is not an object like"),
        ("a.jsonl", '["source", "target"]\n', r"a\.jsonl:1: this is not an object like"),
        ("a.jsonl", '{"source": "\\ud800", "target": "y"}\n', r"a\.jsonl:1: it has half a character"),
        ("a.jsonl", '{"source": "x"}\n', r"a\.jsonl:1: there is no key 'target' .*; there is source"),
        ("a.jsonl", '{"source": "x", "target": 0.5}\n', r"a\.jsonl:1: 'target' is 0.5; it must be a string"),
        ("a.txt", "x\n", r"a\.txt: one file with both sides must end in \.tsv, \.csv or \.jsonl"),
    ],
)
def test_mistakes_in_files_with_both_sides(name: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        list(Corpus(write(tmp_path, name, content)).pairs())


WHOLE = gzip.compress(b'{"source": "x", "target": "y"}\n' * 1000)


@pytest.mark.parametrize(
    "content",
    [WHOLE[: len(WHOLE) // 2], WHOLE[:-1], b"text\n", WHOLE[:20] + b"\xff" * 9 + WHOLE[29:]],
    ids=["half", "without its end", "not gzip", "damaged"],
)
def test_a_broken_gzip_is_named(content: bytes, tmp_path: Path) -> None:
    aligned, both = tmp_path / "a.en.gz", tmp_path / "a.jsonl.gz"
    for path, corpus in ((aligned, Corpus(str(aligned), str(aligned))), (both, Corpus(str(both)))):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"{path.name}: this is not a complete gzip file"):
            list(corpus.pairs())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("question\n".encode("utf-16"), r"a.tsv: this is UTF-16; allowed: text in UTF-8, plain or gzip \(.gz\)"),
        (WHOLE, r"a.tsv: this is gzip, but its name doesn't end in .gz"),
        (b"PK\x03\x04", r"a.tsv: this is a zip archive \(as .xlsx"),
    ],
)
def test_another_kind_of_file_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(content)
    for read in (lambda path: Corpus(path).pairs(), lambda path: read_lines(Path(path))):
        with pytest.raises(UserError, match=message):
            list(read(str(tmp_path / "a.tsv")))


def test_a_folder_and_a_whole_json_are_no_file_of_texts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this is a folder; allowed: a file"):
        list(read_side(tmp_path, PairColumns()))
    (tmp_path / "a.json").write_text('[{"source": "x"}]')
    for read in (lambda path: read_side(path, PairColumns()), lambda path: Corpus(str(path)).pairs()):
        with pytest.raises(UserError, match=r"a.json: JSON in a whole file is not read; allowed: an object a line"):
            list(read(tmp_path / "a.json"))


def test_a_file_with_both_sides_has_no_target(tmp_path: Path) -> None:
    for name in ("a.tsv", "b.fr"):
        (tmp_path / name).write_text("one\tun\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"holds both sides, so there must be no target \(.*data.train.target=null takes it away\)"
    ):
        list(Corpus(str(tmp_path / "a.tsv"), str(tmp_path / "b.fr"), "data.train").pairs())


@pytest.mark.parametrize(
    ("name", "content", "given"),
    [
        ("a.tsv", "gehen\tging\tV PST\nsehen\tsah\tV PST\n", ((0, 2), 1)),
        ("a.csv", "lemma,form,tags\ngehen,ging,V PST\nsehen,sah,V PST\n", (("lemma", "tags"), "form")),
        (
            "a.jsonl",
            '{"lemma": "gehen", "form": "ging", "tags": "V PST"}\n{"lemma": "sehen", "form": "sah", "tags": "V PST"}\n',
            (("lemma", "tags"), ("form",)),
        ),
    ],
)
def test_several_columns_are_one_side(name: str, content: str, given: tuple[Side, Side], tmp_path: Path) -> None:
    path, columns = write(tmp_path, name, content), PairColumns(given)
    found = [Pair("gehen V PST", "ging"), Pair("sehen V PST", "sah")]
    assert list(Corpus(path, columns=columns).pairs()) == found
    assert list(read_side(Path(path), columns)) == [pair.source for pair in found]


def test_texts_to_predict_need_no_target_columns(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "a.csv", "lemma,tags\ngehen,V PST\n"))
    columns = PairColumns((("lemma", "tags"), ("form", "stem")))
    assert list(read_side(path, columns)) == ["gehen V PST"]
    with pytest.raises(UserError, match=r"a\.csv:1: no column 'form' \(data\.columns\.target\)"):
        list(Corpus(str(path), columns=columns).pairs())


def test_a_header_is_no_pair(tmp_path: Path) -> None:
    for name, text in (("a.tsv", "English\tfrench\na b\tb a\n"), ("a.csv", "question,answer\na,b\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(
            UserError, match=rf"{name}:1: '.*' and '.*' look like a header, .* data.columns: {{source: "
        ):
            list(Corpus(str(tmp_path / name)).pairs())
        for side in ("source", "target"):  # what a trained run reads
            with pytest.raises(UserError, match=rf"{name}:1: '.*' and '.*' look like a header, .* remove the line"):
                list(read_side(tmp_path / name, PairColumns(), side))
    for side, word in (("x", "source"), ("y", "target")):
        (tmp_path / side).write_text(f"{word}\na\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"x:1: 'source' and 'target' look like a header.* remove the line from both files"
    ):
        list(Corpus(str(tmp_path / "x"), str(tmp_path / "y")).pairs())
    (tmp_path / "c.tsv").write_text(
        "source\ttarget\n" + "".join(f"{n}\t{n} {n}\n" for n in range(40)), encoding="utf-8"
    )
    for part in (PartOfPairs(1 << 60, is_held_out=True), PartOfPairs(1 << 60, is_held_out=False)):
        with pytest.raises(UserError, match=r"c.tsv:1: "):
            list(Corpus(str(tmp_path / "c.tsv"), columns=PairColumns(given=(0, 1)), part=part).pairs())
    (tmp_path / "b.tsv").write_text("english\tanglais\nsource\tsource\n", encoding="utf-8")
    assert len(list(Corpus(str(tmp_path / "b.tsv")).pairs())) == 2
