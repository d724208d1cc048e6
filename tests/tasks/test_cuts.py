"""Outputs that were cut are counted under the setting that cut them."""

from __future__ import annotations

from saccade.decoding import Cut
from saccade.tasks.base import Evaluation
from saccade.tasks.cuts import CutCounts
from saccade.tasks.translate.result import TranslationResult


def test_cuts_are_counted_under_the_setting_that_made_them() -> None:
    cuts = CutCounts()
    settings: list[Cut | None] = ["max_length", "max_length_factor", "max_length", "max_rounds", None, None]
    outputs = [TranslationResult("", 0.0, [], [], cut_by=setting) for setting in settings]
    assert [one.cut for one in outputs] == ["length", "length", "length", "loop", None, None]
    first, *others = outputs
    assert list(cuts.watch([first._replace(others=tuple(others[:2])), *others[2:]]))[1:] == others[2:]
    assert cuts.figures() == {"num_outputs": 6, "cut_max_length_factor": 1, "cut_max_length": 2, "cut_max_rounds": 1}
    said = [
        "2 of 6 outputs reached their greatest length: decoding.max_length",
        "1 of 6 outputs reached its greatest length: decoding.max_length_factor",
        "1 of 6 outputs was cut where it went in circles: decoding.max_rounds",
    ]
    assert cuts.describe() == said
    found = cuts.add_to(Evaluation({"bleu": 1.0}, ["BLEU 1.00"]))
    assert found.lines == ["BLEU 1.00", *said]
    assert found.scores["cut"] == {"max_length_factor": 1, "max_length": 2, "max_rounds": 1}


def test_nothing_is_said_where_nothing_was_cut() -> None:
    cuts = CutCounts()
    list(cuts.watch([TranslationResult("", 0.0, [], [])]))
    assert cuts.describe() == []
    assert cuts.figures() == {"num_outputs": 1}
