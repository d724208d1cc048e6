"""Statistics of each head: how sharp its weights are, how far away and on which pieces; a table of layers x heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from saccade.data.text.tokenizer import END, SPECIAL
from saccade.inspection.insight import Insight

COLUMNS: Final = {
    "entropy": "bits; 0: all weight on one piece, log2 S: the same on all",
    "distance": "mean distance of the weights from step t, both as shares of their lengths; 0: the diagonal",
    "confidence": "mean of the greatest weight, </s> left out (Voita 2019, section 4)",
    "end": "share on </s>",
    "first": "share on the first piece",
    "previous": "share on the piece before",
    "same": "share on the piece itself",
    "next": "share on the piece after",
    "coverage": "mean over the pieces read of the greatest weight that any step gives them",
    "agreement": "share of steps whose greatest weight is where the aligning head's is",
}
NEIGHBOURS: Final = {  # of a piece, as diagonals; a translator's decoder reads <s> first: its key t is the piece before
    "encoder": {"previous": -1, "same": 0, "next": 1},
    "decoder": {"previous": 0},
}


class HeadWeights(NamedTuple):
    """One sentence's weights [L, H, T, S]; the place of </s> among its keys, and which diagonals are neighbours."""

    weight_LHTS: Tensor
    end: int | None = None
    neighbours: Mapping[str, int] | None = None
    aligning: tuple[int, int] | None = None

    @classmethod
    def of(cls, insight: Insight, kind: str) -> HeadWeights:
        found, head = insight.map(kind), insight.aligning if kind == "cross" else None
        pieces = insight.sides[found.keys].pieces
        end = len(pieces) - 1 if pieces[-1] == SPECIAL[END] else None
        aligning = None if head is None or head.head is None else (head.layer, head.head)
        neighbours = NEIGHBOURS["encoder" if found.queries == found.keys else kind] if kind in NEIGHBOURS else None
        return cls(found.weight_LHTS, end, neighbours, aligning)


def table(sentences: Iterable[HeadWeights]) -> dict[str, Tensor]:
    """Average each statistic over all steps of all sentences, [L, H]; one that no sentence has is left out."""
    totals: dict[str, tuple[Tensor, int]] = {}
    for sentence in sentences:
        for name, value_LHN in measure(sentence).items():
            total, count = totals.get(name, (torch.zeros(()), 0))
            totals[name] = total + value_LHN.sum(-1), count + value_LHN.shape[-1]
    return {name: totals[name][0] / max(1, totals[name][1]) for name in COLUMNS if name in totals}


def rows(found: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Return the table row by row: layer, head, and each statistic."""
    shape = next(iter(found.values()), torch.zeros(0, 0)).shape
    return [
        {
            "layer": layer,
            "head": head,
            **{name: round(float(value_LH[layer, head]), 4) for name, value_LH in found.items()},
        }
        for layer in range(shape[0])
        for head in range(shape[1])
    ]


def measure(sentence: HeadWeights) -> dict[str, Tensor]:
    """Measure one sentence: each statistic [L, H, N] of N steps (coverage: of N pieces read)."""
    weight_LHTS, end, neighbours, aligning = sentence
    found = {"entropy": _entropy(weight_LHTS), "first": weight_LHTS[..., 0]}
    if weight_LHTS.shape[-2] > 1:  # a label has no position
        found["distance"] = _distance(weight_LHTS)
    without_end = [key for key in range(weight_LHTS.shape[-1]) if key != end] or [0]
    found["confidence"] = weight_LHTS[..., without_end].amax(-1)
    if end is not None:
        found["end"] = weight_LHTS[..., end]
    if neighbours is None:
        found["coverage"] = weight_LHTS[..., without_end].amax(-2)
    else:
        found |= {name: _shift_weights(weight_LHTS, by) for name, by in neighbours.items()}
    if aligning is not None:
        peak_LHT = weight_LHTS.argmax(-1)
        found["agreement"] = (peak_LHT == peak_LHT[aligning]).float()
    return found


def _entropy(weight_LHTS: Tensor) -> Tensor:
    return torch.special.entr(weight_LHTS).sum(-1) / torch.tensor(2.0).log()


def _distance(weight_LHTS: Tensor) -> Tensor:
    """Return the mean distance of positions that go from 0 to 1 on both sides."""
    place_T, place_S = (torch.arange(size) / max(1, size - 1) for size in weight_LHTS.shape[-2:])
    return (weight_LHTS * (place_T[:, None] - place_S).abs()).sum(-1)


def _shift_weights(weight_LHTT: Tensor, by: int) -> Tensor:
    """Return the weight on the piece that is `by` further; steps that have none count as 0."""
    diagonal_LHN = weight_LHTT.diagonal(by, -2, -1)
    return torch.nn.functional.pad(diagonal_LHN, (0, abs(by)))
