"""Confusion: counted by hand, cut to the window, and safe to show."""

from __future__ import annotations

import pytest

from saccade.inspection.draw.confusion import Confusion, LabelCounts, LabelScores, render_articles, shade_words

TRUE = ["a", "a", "a", "b", "b", "c"]
FOUND = ["a", "a", "b", "b", "d", "a"]


def test_by_hand() -> None:
    counted = Confusion.of(TRUE, FOUND)
    assert counted.labels == ["a", "b", "c", "d"]  # the most frequent first; d occurs only as an answer
    assert counted.count.tolist() == [[2, 1, 0, 0], [0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert counted.accuracy == 50.0
    first, *others = counted.by_label()
    assert first[:2] == ("a", 3)
    assert first[2:] == pytest.approx((200 / 3, 200 / 3, 200 / 3))
    assert others == [
        LabelScores("b", 2, 50.0, 50.0, 50.0),
        LabelScores("c", 1, 0.0, 0.0, 0.0),
        LabelScores("d", 0, 0.0, 0.0, 0.0),
    ]
    assert counted.macro_f1 == pytest.approx((200 / 3 + 50) / 4)


def test_in_the_terminal() -> None:
    assert Confusion.of(["a", "a", "bb"], ["a", "bb", "bb"]).lines() == [
        "    a  bb    F1",
        " a  1   1  66.7",
        "bb  0   1  66.7",
    ]


def test_rare_labels_are_counted_together() -> None:
    true, found = ([f"label-of-{name}" for name in names] for names in (TRUE, FOUND))
    lines = [line.replace("label-of-", "") for line in Confusion.of(true, found).lines(width=50)]
    head, *rows = lines[:4]
    assert head.split() == ["a", "b", "(others)", "F1"]
    assert [row.split() for row in rows] == [
        ["a", "2", "1", "0", "66.7"],
        ["b", "0", "1", "1", "50.0"],
        ["(others)", "1", "0", "0"],
    ]


def test_a_wide_table_fits_and_the_worst_pairs_are_named() -> None:
    true = [f"label number {number % 41}" for number in range(410)]
    found = [f"label number {number % 41 if number % 5 else (number + 1) % 41}" for number in range(410)]
    true, found = [*true, *["label number 7"] * 5], [*found, *["label number 30"] * 5]
    for width in (20, 60, 80, 200):
        lines = Confusion.of(true, found).lines(width)
        assert max(map(len, lines[: lines.index("")])) <= width if lines[0] else width == 20
        heading = lines.index("Most confused of 41 labels (true -> given; --json has all):")
        assert lines[heading + 1] == "     5  label number 7 -> label number 30"
        assert len(lines) == heading + 11
    few = Confusion.of(true, found).scores()
    assert len(few["confusion"]["count"]) == len(few["by_label"]) == 41


def test_several_labels_by_hand() -> None:
    counted = LabelCounts.of([["a", "b"], ["a"], []], [["a"], ["a", "c"], []])
    assert counted.by_label() == [
        LabelScores("a", 2, 100.0, 100.0, 100.0),
        LabelScores("b", 1, 0.0, 0.0, 0.0),
        LabelScores("c", 0, 0.0, 0.0, 0.0),
    ]
    assert counted.micro_f1 == pytest.approx(200 * 2 / (3 + 3))
    assert counted.macro_f1 == pytest.approx(100 / 3)
    assert counted.accuracy == pytest.approx(100 / 3)
    assert counted.lines()[1].split() == ["a", "2", "100.0", "100.0", "100.0"]


def test_in_the_report() -> None:
    page = Confusion.of(["<b>", "<b>", "x"], ["<b>", "x", "x"]).html()
    assert "<b>" not in page
    assert page.count("&lt;b&gt;") == 3  # a row, a column, a line of scores
    assert '<td style="--w:1.00;color:var(--on-heat)">1</td>' in page
    assert '<td style="--w:0.50;color:var(--on-cold)">1</td>' in page


def test_words_are_shaded_by_their_weight() -> None:
    text = shade_words(["<i>", "good"], [0.2, 0.8])
    assert text.index("/ 0.15") < text.index("&lt;i&gt;") < text.index("/ 0.60") < text.index("good")
    assert shade_words([], []) == ""
    assert "<script" not in render_articles([(text, "<script>", "<script>", "<script>")])
