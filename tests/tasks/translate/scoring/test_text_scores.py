"""All scores of a set of outputs, and which of them are shown."""

from __future__ import annotations

import pytest

from saccade.tasks.translate.scoring import scores
from saccade.tasks.translate.scoring.metrics import Judgement, exact_match

LONG, SHORT = ["a b c d e"], ["a b", "c", "a b c d"]


def test_exact_match_by_hand() -> None:
    assert exact_match(["a", "b c", "B", ""], ["a", "b c", "b", "x"]) == 50
    assert exact_match([], []) == 0


@pytest.mark.parametrize(
    ("metric", "references", "shown"),
    [
        ("bleu", LONG, ["bleu", "chrf", "exact", "wer"]),
        ("bleu", SHORT, ["bleu", "chrf", "exact", "wer"]),
        ("exact", LONG, ["exact", "chrf", "bleu", "wer"]),
        ("exact", SHORT, ["exact", "chrf", "wer"]),
        ("wer", SHORT, ["wer", "exact", "chrf"]),
        ("rouge", LONG, ["rouge", "rouge1", "rouge2", "bleu", "chrf", "exact", "wer"]),
        ("loss", LONG, ["bleu", "chrf", "exact", "wer"]),
        ("auto", LONG, ["bleu", "chrf", "exact", "wer"]),
    ],
)
def test_the_metric_of_the_run_is_shown_first(metric: str, references: list[str], shown: list[str]) -> None:
    assert scores.choose_shown(Judgement(metric), references) == shown


def test_scores_are_described_with_what_makes_them_comparable() -> None:
    found = scores.score_texts(["a b c d e", "f"], ["a b c d e", "g"])
    lines = scores.describe_scores(found, ["rouge", "exact", "bleu"])
    assert lines[0] == "ROUGE-L 50.00  (F1, mean of the pairs; words in lower case, no stemming)"
    assert lines[1] == "exactly right 50.00%"
    assert lines[2].startswith(f"BLEU {found.bleu:.2f}  (nrefs:1|")
