"""Files with columns: which of them are the sides of a pair, and every way a table can be wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from saccade.data.text.corpus import Corpus, Pair, PairColumns, place_of_row, read_side
from saccade.errors import UserError

DEFAULT, ENGLISH, PLACES = PairColumns(), PairColumns(("english", "german")), PairColumns((2, 0))
CODES = PairColumns(languages=("en", "de"))
HUGGING_FACE = '{"id": 1, "translation": {"de": "ein Haus", "en": "a house"}}\n'


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path, raw = folder / name, content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", '"a house",ein Haus\r\n', PairColumns()),
        ("a.CSV", "\ufeffid,source,target\r\n7,a  house,ein Haus\r\n", PairColumns()),
        ("a.csv.gz", "de,en\nein Haus,a house\n", CODES),
        ("a.tsv", "german\tnotes\tenglish\nein Haus\t\ta house\n", ENGLISH),
        ("a.tsv.gz", "ein Haus\tCC-BY\ta house\n", PLACES),
        ("a.tsv", '"a house"\tein Haus\n', PairColumns()),
        ("a.jsonl", '{"english": "a house", "german": "ein Haus"}\n', ENGLISH),
        ("a.jsonl", HUGGING_FACE, CODES),
        ("a.jsonl.gz", HUGGING_FACE, PairColumns(("en", "de"))),
        ("a.jsonl", HUGGING_FACE, PairColumns(("translation.en", "translation.de"))),
        ("a.jsonl", '{"en": "a house", "de": "ein Haus"}\n', CODES),
    ],
)
def test_the_columns_of_a_pair(name: str, content: str, columns: PairColumns, tmp_path: Path) -> None:
    path = write(tmp_path, name, content)
    (found,) = Corpus(str(path), columns=columns).pairs()
    assert (found.source.strip('"'), found.target) == ("a house", "ein Haus")
    assert [text.strip('"') for text in read_side(path, columns)] == ["a house"]
    assert list(read_side(path, columns, "target")) == ["ein Haus"]


def test_quotes_commas_and_line_breaks_in_csv_and_the_places_of_its_rows(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", '\ufeff"one, ""two""\nthree",eins\n\nfour,"vier\nfünf"\nsix,sechs\n')
    corpus = Corpus(str(path))
    rows = [Pair('one, "two" three', "eins"), Pair("", ""), Pair("four", "vier fünf"), Pair("six", "sechs")]
    assert list(corpus.pairs()) == rows
    assert [corpus.place(row, 1) for row in range(4)] == [f"{path}:{line}" for line in (1, 3, 4, 6)]
    assert place_of_row(path, DEFAULT, 3) == f"{path}:6"


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.tsv", "one\n\ntwo\n", PairColumns()),
        ("a.tsv", "english\none\n\ntwo\n", ENGLISH),
        ("a.csv", "source\none\n\ntwo\n", PairColumns()),
        ("a.csv", "x,y,one\n\nx,y,two\n", PairColumns((2, 3))),
        ("a.jsonl", '{"source": "one"}\n\n{"source": "two"}', PairColumns()),
        ("a.jsonl", '{"translation": {"en": "one"}}\n\n{"translation": {"en": "two"}}\n', CODES),
        ("a.en.gz", "one\n\ntwo\n", ENGLISH),
    ],
)
def test_sources_are_read_where_there_are_no_targets(
    name: str, content: str, columns: PairColumns, tmp_path: Path
) -> None:
    assert list(read_side(write(tmp_path, name, content), columns)) == ["one", "", "two"]


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.csv", "x,y\nHello, world,Hallo\n", DEFAULT, r"a.csv:2: the line has 3 columns, more than the first, 2 \("),
        ("a.tsv", "x\ty\nx\ty\tz\n", DEFAULT, r"a.tsv:2: the line has 3 columns, more than the first, 2$"),
        ("a.csv", 'x,y\n\nx,"y\n', DEFAULT, r"a.csv:3: this is not CSV \(unexpected end of data\)"),
        ("a.csv", "x,y\rz,w\r", DEFAULT, r"a.csv:1: this is not CSV \(a line ends in CR alone\)"),
        ("a.csv", "en,de\nx,y\n", ENGLISH, r"a.csv:1: no column 'english' \(.*source\) in its header: en, de;"),
        ("a.tsv", "english\tgerman\tgerman\n", ENGLISH, r"a.tsv:1: 2 columns 'german' \(.*target\) in its"),
        ("a.tsv", "a\tb\n", PLACES, r"a.tsv:1: the line has 2 columns, but the source is in column 2 from 0"),
        ("a.jsonl", '{"x": "y"}\n', PLACES, "data.columns: positions given, but .*a.jsonl is JSONL"),
        ("a.jsonl", HUGGING_FACE, DEFAULT, r"no key .source. .*; there is id, .*n.de, translation.en$"),
        ("a.jsonl", HUGGING_FACE, PairColumns(("en", "fr")), r"a.jsonl:1: there is no key 'translation.fr'"),
        ("a.jsonl", '{"source": "x", "target": true}\n', DEFAULT, "a.jsonl:1: 'target' is true; it must be a string"),
        ("a.jsonl", "[1]\n", ENGLISH, r'a.jsonl:1: this is not an object like \{"english": "...", "german": "..."\}'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(name: str, content: str, columns: PairColumns, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        list(Corpus(str(write(tmp_path, name, content)), columns=columns).pairs())


def test_numbers_are_texts_too(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", json.dumps({"source": "two and two", "target": 4}))
    assert list(Corpus(str(path)).pairs()) == [Pair("two and two", "4")]
