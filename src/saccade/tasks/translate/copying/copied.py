"""Copies in an output: the words that were copied, and from where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.inspection.insight import DECIMALS, TextSide
from saccade.models.pointing.copying import CopyInputs


class CopyOrigin(NamedTuple):
    """The origin of a piece: g, the share of its probability that is due to copies, and the place pointed at most."""

    gate: float
    share: float
    place: int
    weight: float  # of that place

    def plain(self) -> dict[str, float]:
        return {name: round(value, DECIMALS) for name, value in self._asdict().items()}


def tell_copied(
    found: CopyInputs, row: int, ids: Sequence[int], source_S: Tensor, steps: Sequence[float]
) -> list[CopyOrigin]:
    """Tell of each written id how it came about; `steps` are their log-probabilities."""
    weight_TS, gate_T = found.weight_BTS[row, : len(ids)].cpu(), found.gate_BT[row, : len(ids)].float().cpu()
    same_TS = torch.tensor(ids, dtype=torch.long)[:, None] == source_S.cpu()
    log_copied_T = F.logsigmoid(-gate_T) + (weight_TS * same_TS).sum(1).log()
    share_T = (log_copied_T - torch.tensor(steps)).exp().clamp(max=1)
    most = weight_TS.max(1)
    columns = (gate_T.sigmoid(), share_T, most.indices, most.values)
    return [CopyOrigin(*one) for one in zip(*(column.tolist() for column in columns), strict=True)]


def describe_copies(copied: Sequence[CopyOrigin], output: TextSide, source: TextSide) -> list[str]:
    """Say which words were copied, from which words of the source (counted from 1), and how surely."""
    found = list(_copied_words(copied, output, source))
    gate = sum(one.gate for one in copied) / max(1, len(copied))
    head = f"copied: {len(found)} of {len(output.words)} words; g, the share of written ones, is {gate:.2f} on average"
    return [head, *(f"  {line}" for line in found)]


def _copied_words(copied: Sequence[CopyOrigin], output: TextSide, source: TextSide) -> Iterator[str]:
    """Yield a line for each word most of which was copied."""
    for number, word in enumerate(output.words):
        own = [one for one, at in zip(copied, output.word_of_piece, strict=True) if at == number]
        share = sum(one.share for one in own) / len(own)
        if share >= 0.5:
            at = source.word_of_piece[own[0].place]
            yield f"{word} <- word {at + 1}, {source.words[at]} ({share:.0%})"
