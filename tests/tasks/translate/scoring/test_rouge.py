"""ROUGE against figures worked by hand."""

from __future__ import annotations

import itertools
import random

import pytest

from saccade.tasks.translate.scoring.metrics import METRICS
from saccade.tasks.translate.scoring.rouge import longest_common_subsequence, rouge_l, rouge_n, split

REFERENCE = ["police", "killed", "the", "gunman"]  # the example of Lin 2004, section 3.1


@pytest.mark.parametrize(
    ("output", "expected"),
    [("police kill the gunman", 3 / 4), ("the gunman kill police", 2 / 4), ("the gunman police killed", 2 / 4)],
)
def test_rouge_l_of_the_papers_example(output: str, expected: float) -> None:
    assert rouge_l(output.split(), REFERENCE) == pytest.approx(expected)


def test_rouge_n_by_hand() -> None:
    one, two = rouge_n(1), rouge_n(2)
    output = ["the", "the", "police", "killed"]
    assert one(output, REFERENCE) == pytest.approx(2 * 3 / 8)  # the second "the" has no partner
    assert two(output, REFERENCE) == pytest.approx(2 * 1 / 6)  # police killed
    assert two(["gunman"], ["gunman"]) == 0  # one word has no pair
    assert one([], []) == rouge_l([], []) == 0


def test_the_longest_common_subsequence_is_that_of_the_plain_recursion() -> None:
    def plain(one: str, other: str) -> int:
        row = [0] * (len(other) + 1)
        for letter in one:
            last = row
            row = [0]
            for place, (above, left) in enumerate(itertools.pairwise(last)):
                row.append(above + 1 if other[place] == letter else max(left, row[-1]))
        return row[-1]

    draw = random.Random(3)
    for _ in range(200):
        one, other = ("".join(draw.choices("abcd", k=draw.randrange(14))) for _ in range(2))
        assert longest_common_subsequence(one, other) == plain(one, other), (one, other)


def test_words_have_no_case_and_no_punctuation() -> None:
    assert split("Übung, macht: den MEISTER_3!") == ["übung", "macht", "den", "meister_3"]
    assert METRICS["rouge"](["Budget?", "no"], ["BUDGET", "yes"]) == 50
