"""Labelled texts from files, in every format, and every way a file can be wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from saccade.data.labels.labelled import LabelColumns, Spelling, Text, parse_lines, read_labelled
from saccade.errors import UserError

POSITIONS = LabelColumns(3, 2, 0, 1)


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path, raw = folder / name, content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.txt", "yes  go on \n\nno stop it\r\n", LabelColumns()),
        ("a.txt.gz", "\ufeffyes go on\nno stop it", LabelColumns()),
        ("a.tsv", "go on\tyes\nstop it\tno\n", LabelColumns(1, 0)),
        ("a.tsv", "id\ttext\tlabel\r\n1\tgo on\tyes\r\n2\tstop it\tno\r\n", LabelColumns()),
        ("a.csv", '\ufefflabel,text\nyes,"go\non"\n\n"no",stop it\n', LabelColumns()),
        ("a.csv", "yes,go on\nno,stop it\n", LabelColumns(0, 1)),
        (
            "a.jsonl",
            '{"label": "yes", "text": "go on"}\n\n{"label": "no", "text": "stop it", "more": 1}\n',
            LabelColumns(),
        ),
        (
            "a.jsonl.gz",
            '{"tag": "yes", "words": "go on"}\n{"tag": "no", "words": "stop it"}',
            LabelColumns("tag", "words"),
        ),
    ],
)
def test_every_format(tmp_path: Path, name: str, content: str, columns: LabelColumns) -> None:
    assert list(read_labelled([written(tmp_path, name, content)], columns)) == [
        Text("go on", "yes"),
        Text("stop it", "no"),
    ]


def test_numbers_are_labels_too(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", '{"label": 1, "text": "good"}')
    assert list(read_labelled([path], LabelColumns())) == [Text("good", "1")]


def test_dialogues_and_speakers(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", '7\tA\tOkay.\tfo\n7\tB\t"Well,\tsd\n')
    assert (
        list(read_labelled([path, path], POSITIONS))
        == [Text("Okay.", "fo", "7", "A"), Text('"Well,', "sd", "7", "B")] * 2
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "yes,no go on\nno stop it\n"),
        ("a.csv", 'label,text\n"no, yes,yes",go on\nno,stop it\n"",hm\n'),
        ("a.jsonl", '{"label": ["yes", "no"], "text": "go on"}\n{"label": "no", "text": "stop it"}\n'),
    ],
)
def test_several_labels_at_once(tmp_path: Path, name: str, content: str) -> None:
    found = list(read_labelled([written(tmp_path, name, content)], LabelColumns(separator=",")))
    assert found[:2] == [Text("go on", "no,yes"), Text("stop it", "no")]
    assert found[2:] in ([], [Text("hm")])


def test_without_labels(tmp_path: Path) -> None:
    table = written(tmp_path, "a.tsv", "7\tA\tOkay.\n7\tB\tWell,\tsd\n")
    assert [text.label for text in read_labelled([table], POSITIONS, needs_label=False)] == ["", "sd"]
    blank = written(tmp_path, "c.tsv", "go on\n\nstop it\n")
    assert [text.text for text in read_labelled([blank], LabelColumns(1, 0), needs_label=False)] == [
        "go on",
        "",
        "stop it",
    ]
    assert list(read_labelled([written(tmp_path, "d.csv", "text\n")], LabelColumns(), needs_label=False)) == []
    named = written(tmp_path, "b.csv", "text\ngo on\n")
    assert list(read_labelled([named], LabelColumns(), needs_label=False)) == [Text("go on")]


@pytest.mark.parametrize(
    ("name", "content", "columns", "said"),
    [
        ("a.txt", "", LabelColumns(), "a.txt: it is empty; there must be at least one text"),
        ("a.tsv", "label\ttext\n", LabelColumns(), "a.tsv: it is empty"),
        ("a.tsv", "", LabelColumns(), "a.tsv: it is empty"),
        ("a.txt", "1 good\n", POSITIONS, "data.columns: given, but .*a.txt is plain text, label first"),
        (
            "a.tsv",
            "go on\tyes\n",
            LabelColumns(),
            r"a.tsv:1: no column 'label' \(data.columns.label\) in its header: go on",
        ),
        (
            "a.tsv",
            "1\tA\tHi\tx\n1\tB\tHi\n",
            POSITIONS,
            r"a.tsv:2: the line has 3 columns, but the label is in column 3",
        ),
        ("a.tsv", "1\n", POSITIONS, r"a.tsv:1: the line has 1 column, but the label is in column 3"),
        ("a.tsv", "1\tA\tHi\t \n", POSITIONS, "a.tsv:1: there is no label"),
        ("a.csv", 'label,text\nyes,"go"on\n', LabelColumns(), "a.csv:2: this is not CSV"),
        ("a.jsonl", '{"label": "a", "text": "b"}\n[1]\n', LabelColumns(), "a.jsonl:2: this is not an object like"),
        ("a.jsonl", "{\n", LabelColumns(), "a.jsonl:1: this is not an object like"),
        ("a.jsonl", '{"label": "a"}\n', LabelColumns(), "a.jsonl:1: there is no key 'text' .*; there is label"),
        (
            "a.jsonl",
            '{"label": null, "text": "b"}\n',
            LabelColumns(),
            "a.jsonl:1: 'label' is null; it must be a string",
        ),
        ("a.jsonl", '{"label": "a", "text": "b"}\n', POSITIONS, "data.columns: positions given, but .* is JSONL"),
        ("a.tsv", b"a\tb\n\xff\tb\n", LabelColumns(0, 1), "a.tsv:2: this is not UTF-8"),
        (
            "a.tsv",
            "Text\tLabel\ngo on\tyes\n",
            LabelColumns(1, 0),
            r"a.tsv:1: this looks like a header; give names instead: data.columns: {label: Label, text: Text}",
        ),
        ("a.txt", "label text\nyes go on\n", LabelColumns(), "a.txt:1: 'label text' looks like a header; remove"),
        (
            "a.jsonl",
            '{"label": ["a"], "text": "b"}\n',
            LabelColumns(),
            "a.jsonl:1: 'label' is a list; for several labels at once set data.separator",
        ),
        (
            "a.jsonl",
            '{"label": ["a,b"], "text": "b"}\n',
            LabelColumns(separator=","),
            "a.jsonl:1: \"a,b\" in 'label'; labels must be strings without ','",
        ),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, name: str, content: str | bytes, columns: LabelColumns, said: str
) -> None:
    with pytest.raises(UserError, match=said) as found:
        list(read_labelled([written(tmp_path, name, content)], columns))
    assert "\n" not in str(found.value)


def test_spelling() -> None:
    text = "Uh-huh, I don't know. [Really?]"
    assert Spelling()(text) == text
    assert Spelling(lowercase=True)(text) == text.lower()
    assert Spelling(True, True)(text) == "uh-huh , i don't know . [ really ? ]"
    assert Spelling(True, True).words(text)[:2] == ["Uh-huh", ","]


def test_plain_lines() -> None:
    lines = ["Hi  there\n", "A\tYes.\n", "\n", "No.\n"]
    assert [text.text for text in parse_lines(lines, as_dialogue=False)] == ["Hi there", "A Yes.", "", "No."]
    assert list(parse_lines(lines, as_dialogue=True)) == [
        Text("Hi there", dialogue="0"),
        Text("Yes.", dialogue="0", speaker="A"),
        Text("No.", dialogue="1"),
    ]
