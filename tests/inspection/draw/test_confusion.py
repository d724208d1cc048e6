"""Confusion: counted by hand, cut to the window, and safe to show."""

from __future__ import annotations

import pytest

from saccade.inspection.draw.confusion import Confusion, LabelScores, render_articles, shade_words

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
    head, *rows = Confusion.of(TRUE, FOUND).lines(most=3)
    assert head.split() == ["a", "b", "(others)", "F1"]
    assert [row.split() for row in rows] == [
        ["a", "2", "1", "0", "66.7"],
        ["b", "0", "1", "1", "50.0"],
        ["(others)", "1", "0", "0"],
    ]


def test_in_the_report() -> None:
    page = Confusion.of(["<b>", "<b>", "x"], ["<b>", "x", "x"]).html()
    assert "<b>" not in page
    assert page.count("&lt;b&gt;") == 3  # a row, a column, a line of scores
    assert '<td style="--w:1.00;color:var(--on-accent)">1</td>' in page
    assert '<td style="--w:0.50;color:var(--ink)">1</td>' in page


def test_words_are_shaded_by_their_weight() -> None:
    text = shade_words(["<i>", "good"], [0.2, 0.8])
    assert text.index("/ 0.15") < text.index("&lt;i&gt;") < text.index("/ 0.60") < text.index("good")
    assert shade_words([], []) == ""
    assert "<script" not in render_articles([(text, "<script>", "<script>", "<script>")])
