"""What each head does, in figures: how sharply, how far and at what it looks; a table of layers x heads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import torch
from torch import Tensor

COLUMNS: Final = {
    "entropy": "bits; 0 looks at one piece, log2 S at all alike",
    "distance": "mean |t/T - s/S| of what is looked at; 0 is the diagonal",
    "confidence": "mean of the greatest weight, </s> left out (Voita 2019, section 4)",
    "end": "share on </s>",
    "first": "share on the first piece",
    "previous": "share on the piece before, where a text reads itself",
    "same": "share on the piece itself, where a text reads itself",
    "next": "share on the piece after, where a text reads itself",
    "coverage": "mean over the pieces read of the greatest weight that each is given by any step",
    "agreement": "share of steps whose greatest weight is where the aligning head's is",
}


class Looked(NamedTuple):
    """One sentence's weights [L, H, T, S]; where </s> stands among its keys, and whether a text reads itself."""

    weight_LHTS: Tensor
    end: int | None
    is_own: bool
    aligning: tuple[int, int] | None = None


def table(sentences: Iterable[Looked]) -> dict[str, Tensor]:
    """Each statistic [L, H], over all steps of all sentences; one that none of them has is left out."""
    totals: dict[str, tuple[Tensor, int]] = {}
    for sentence in sentences:
        for name, value_LHN in of(sentence).items():
            total, count = totals.get(name, (torch.zeros(()), 0))
            totals[name] = total + value_LHN.sum(-1), count + value_LHN.shape[-1]
    return {name: totals[name][0] / max(1, totals[name][1]) for name in COLUMNS if name in totals}


def of(sentence: Looked) -> dict[str, Tensor]:
    """The statistics of one sentence [L, H, N], N steps (of coverage: pieces read) that are averaged over."""
    weight_LHTS, end, is_own, aligning = sentence
    found = {"entropy": _entropy(weight_LHTS), "distance": _distance(weight_LHTS)}
    without_end = [key for key in range(weight_LHTS.shape[-1]) if key != end] or [0]
    found["confidence"] = weight_LHTS[..., without_end].amax(-1)
    if end is not None:
        found["end"] = weight_LHTS[..., end]
    found["first"] = weight_LHTS[..., 0]
    if is_own:
        found |= {name: _beside(weight_LHTS, by) for name, by in (("previous", -1), ("same", 0), ("next", 1))}
    else:
        found["coverage"] = weight_LHTS[..., without_end].amax(-2)
    if aligning is not None:
        peak_LHT = weight_LHTS.argmax(-1)
        found["agreement"] = (peak_LHT == peak_LHT[aligning]).float()
    return found


def _entropy(weight_LHTS: Tensor) -> Tensor:
    return torch.special.entr(weight_LHTS).sum(-1) / torch.tensor(2.0).log()


def _distance(weight_LHTS: Tensor) -> Tensor:
    """Positions from 0 to 1 on both sides, whatever their lengths."""
    place_T, place_S = (torch.arange(size) / max(1, size - 1) for size in weight_LHTS.shape[-2:])
    return (weight_LHTS * (place_T[:, None] - place_S).abs()).sum(-1)


def _beside(weight_LHTT: Tensor, by: int) -> Tensor:
    """The share on the piece so many further; steps that have none count as 0."""
    diagonal_LHN = weight_LHTT.diagonal(by, -2, -1)
    return torch.nn.functional.pad(diagonal_LHN, (0, abs(by)))
