"""What heads do, in figures: each of them worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from saccade.inspection.insight import Head, Insight, Map, TextSide
from saccade.inspection.views import heads as head_statistics
from saccade.inspection.views.heads import COLUMNS, NEIGHBOURS, HeadWeights

DIAGONAL = torch.eye(3)
UNIFORM = torch.full((3, 3), 1 / 3)
BACK = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
SOFT = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.25, 0.75], [0.0, 0.0, 1.0]])


def of(*heads: torch.Tensor, **given: object) -> dict[str, list[float]]:
    found = head_statistics.table([HeadWeights(torch.stack(heads)[None], **given)])  # type: ignore[arg-type]
    return {name: value_LH[0].tolist() for name, value_LH in found.items()}


def test_entropy_in_bits() -> None:
    assert of(DIAGONAL, UNIFORM, SOFT)["entropy"] == pytest.approx([0, math.log2(3), (1.5 + 0.8112781 + 0) / 3])


def test_distance_is_relative_to_both_lengths() -> None:
    assert of(DIAGONAL, BACK)["distance"] == pytest.approx([0, (0 + 0.5 + 0.5) / 3])
    stretched = torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0], [0, 0, 0, 0, 1.0]])
    assert of(stretched, stretched.flip(0))["distance"] == pytest.approx([0, 2 / 3])


def test_confidence_leaves_out_the_end() -> None:
    assert of(DIAGONAL, SOFT)["confidence"] == pytest.approx([1, (0.5 + 0.75 + 1) / 3])
    found = of(DIAGONAL, SOFT, end=2)
    assert found["confidence"] == pytest.approx([2 / 3, (0.5 + 0.25 + 0) / 3])
    assert found["end"] == pytest.approx([1 / 3, (0.25 + 0.75 + 1) / 3])


def test_shares_on_the_first_and_on_neighbours() -> None:
    found = of(DIAGONAL, BACK, neighbours=NEIGHBOURS["encoder"])
    assert found["first"] == pytest.approx([1 / 3, 2 / 3])
    assert found["previous"] == pytest.approx([0, 2 / 3])
    assert found["same"] == pytest.approx([1, 1 / 3])
    assert found["next"] == pytest.approx([0, 0])
    assert of(BACK.T.contiguous(), neighbours=NEIGHBOURS["encoder"])["next"] == pytest.approx([2 / 3])


def test_a_decoder_s_previous_piece_is_the_one_it_just_read() -> None:
    found = of(DIAGONAL, BACK, neighbours=NEIGHBOURS["decoder"])
    assert found["previous"] == pytest.approx([1, 1 / 3])
    assert not {"same", "next", "coverage"} & set(found)


def test_coverage_is_how_well_each_piece_is_read_by_some_step() -> None:
    assert of(DIAGONAL, BACK, SOFT)["coverage"] == pytest.approx([1, 2 / 3, (0.5 + 0.25 + 1) / 3])
    assert of(BACK, SOFT, end=2)["coverage"] == pytest.approx([1, (0.5 + 0.25) / 2])


def test_agreement_with_the_head_that_aligns() -> None:
    assert of(DIAGONAL, BACK, SOFT, aligning=(0, 0))["agreement"] == pytest.approx([1, 1 / 3, 2 / 3])


def test_sentences_count_by_their_steps() -> None:
    short, long = HeadWeights(torch.eye(1)[None, None]), HeadWeights(UNIFORM[None, None])
    assert float(head_statistics.table([short, long])["entropy"]) == pytest.approx(3 * math.log2(3) / 4)
    assert head_statistics.table([]) == {}
    assert head_statistics.rows({}) == []


def test_rows_are_of_each_layer_and_head() -> None:
    rows = head_statistics.rows({"end": torch.tensor([[0.125, 0.25, 0.5]])})
    assert rows == [{"layer": 0, "head": head, "end": end} for head, end in enumerate((0.125, 0.25, 0.5))]


def test_an_insight_says_what_there_is_to_measure() -> None:
    source = TextSide("", ["a", "b", "</s>"], ["a", "b", "</s>"], [0, 1, 2])
    maps = {
        "cross": Map("output", "source", SOFT.expand(2, 5, 3, 3)),
        "encoder": Map("source", "source", SOFT.expand(2, 5, 3, 3)),
    }
    seen = Insight("translate", None, {"source": source, "output": source}, maps, Head(1, 4))
    across, own = (head_statistics.table([HeadWeights.of(seen, kind)]) for kind in ("cross", "encoder"))
    assert set(across) == {"entropy", "distance", "confidence", "end", "first", "coverage", "agreement"}
    assert set(own) == {"entropy", "distance", "confidence", "end", "first", "previous", "same", "next"}
    assert list(across) == [name for name in COLUMNS if name in across]
    assert across["agreement"].shape == (2, 5)
