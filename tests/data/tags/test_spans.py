"""Spans: read as conlleval reads them, repaired with a count, converted, and scored as seqeval does."""

from __future__ import annotations

import itertools
import random

import pytest
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

from saccade.data.tags.spans import (
    Span,
    SpanScore,
    allowed_pairs,
    bio,
    bioes,
    convert_tags,
    detect_scheme,
    find_spans,
    iob1,
    repair_tags,
    span_scores,
)

SPANS = [Span("PER", 0, 1), Span("LOC", 3, 3), Span("LOC", 4, 6)]
SPELLED = {
    "bio": "B-PER I-PER O B-LOC B-LOC I-LOC I-LOC",
    "iob1": "I-PER I-PER O I-LOC B-LOC I-LOC I-LOC",
    "bioes": "B-PER E-PER O S-LOC B-LOC I-LOC E-LOC",
}


@pytest.mark.parametrize("scheme", list(SPELLED))
def test_spans_are_spelled_and_read_in_every_scheme(scheme: str) -> None:
    tags = SPELLED[scheme].split()
    assert find_spans(tags) == SPANS
    assert {"bio": bio, "iob1": iob1, "bioes": bioes}[scheme](SPANS, 7) == tags
    assert repair_tags(tags, scheme) == (tags, 0)
    assert detect_scheme([tags]) == scheme
    for other in SPELLED.values():
        assert convert_tags(other.split(), scheme) == tags


@pytest.mark.parametrize(
    ("scheme", "broken", "mended", "count"),
    [
        ("bio", "O I-PER I-PER I-LOC", "O B-PER I-PER B-LOC", 2),
        ("bio", "B-PER I-LOC", "B-PER B-LOC", 1),
        ("bioes", "B-PER O I-LOC E-PER", "S-PER O S-LOC S-PER", 3),
        ("bioes", "S-PER E-PER", "S-PER S-PER", 1),
        ("iob1", "B-PER O I-PER", "I-PER O I-PER", 1),
    ],
)
def test_broken_tags_are_repaired_and_counted(scheme: str, broken: str, mended: str, count: int) -> None:
    assert repair_tags(broken.split(), scheme) == (mended.split(), count)


def test_tags_that_spell_no_spans_have_no_scheme() -> None:
    assert detect_scheme([["NN", "VB"]]) is None
    assert detect_scheme([["O", "B-"]]) is None
    assert detect_scheme([["O", "O"]]) == "bio"


def random_tags(chance: random.Random, length: int) -> list[str]:
    """Any tags of all schemes, mostly broken."""
    return [chance.choice(["O", *(f"{part}-{kind}" for part in "BIES" for kind in ("X", "Y"))]) for _ in range(length)]


def test_any_tags_are_counted_as_seqeval_counts_them() -> None:
    chance = random.Random(1)
    for _ in range(300):
        lengths = [chance.randrange(1, 9) for _ in range(3)]
        gold, found = ([random_tags(chance, length) for length in lengths] for _ in range(2))
        total, by_kind = span_scores(gold, found)
        precision, recall, f1, counts = precision_recall_fscore_support(gold, found, zero_division=0)
        for index, kind in enumerate(sorted({"X", "Y"} & by_kind.keys())):
            one = by_kind[kind]
            shares = (one.precision / 100, one.recall / 100, one.f1 / 100, one.num_gold)
            assert shares == pytest.approx((precision[index], recall[index], f1[index], counts[index]))
        micro = precision_recall_fscore_support(gold, found, average="micro", zero_division=0)
        assert (total.precision / 100, total.recall / 100, total.f1 / 100) == pytest.approx(micro[:3])


def test_scores_by_hand() -> None:
    total, by_kind = span_scores([["B-X", "I-X", "O", "B-Y"]], [["B-X", "O", "B-Y", "B-Y"]])
    assert total == SpanScore(2, 3, 1)
    assert by_kind == {"X": SpanScore(1, 1, 0), "Y": SpanScore(1, 2, 1)}
    assert (total.precision, total.recall, total.f1) == pytest.approx((100 / 3, 50.0, 40.0))
    assert (SpanScore(0, 0, 0).precision, SpanScore(0, 0, 0).recall, SpanScore(0, 0, 0).f1) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_allowed_pairs_are_just_those_that_need_no_repair(scheme: str) -> None:
    """A sequence keeps to the table exactly where repairing changes nothing."""
    parts = "BI" if scheme == "bio" else "BIES"
    tags = ["O", *(f"{part}-{kind}" for part in parts for kind in ("X", "Y"))]
    table = allowed_pairs(tags, scheme)
    for row in itertools.product(range(len(tags)), repeat=3):
        edge = len(tags)
        keeps = all(table[before][after] for before, after in itertools.pairwise([edge, *row, edge]))
        assert keeps == (repair_tags([tags[index] for index in row], scheme).num_changed == 0)
