"""Which head aligns? Every head as a word aligner: by gold, by agreement of two directions, or by what it reaches.

Weights are of words, [..., T, S] with </s> last on both sides. The step that reads a word often aligns it better than
the one that writes it (Chen 2020), so every head stands for two aligners, shift 0 and shift 1; so does every layer's
mean of its heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from saccade.inspection.align.links import AlignmentScores, Gold, Links
from saccade.inspection.insight import Head

SHIFTS = (0, 1)


def candidates(num_layers: int, num_heads: int) -> list[Head]:
    """All aligners of a model, in the order of `all_weights`."""
    heads = [*range(num_heads), None]
    return [Head(layer, head, shift) for shift in SHIFTS for layer in range(num_layers) for head in heads]


def all_weights(weight_BLHTS: Tensor) -> Tensor:
    """What each candidate weighs for each written piece, [B, C, T, S]; what it weighs for </s> means nothing."""
    weight_BLHTS = torch.cat([weight_BLHTS, weight_BLHTS.mean(2, keepdim=True)], 2)
    return torch.stack([weight_BLHTS.roll(-shift, -2) for shift in SHIFTS], 1).flatten(1, 3)


def linked(weight_TS: Tensor) -> Tensor:
    """Each target word with the source word of greatest weight, never </s>: True where linked, [..., T, S].

    A word that weighs nothing has no link.
    """
    weight_TS = weight_TS[..., :-1, :-1].nan_to_num()
    if not weight_TS.numel():
        return weight_TS.bool()
    greatest_T, source_T = weight_TS.max(-1, keepdim=True)
    return torch.zeros_like(weight_TS, dtype=torch.bool).scatter(-1, source_T, greatest_T > 0)


def links_of(linked_TS: Tensor) -> Links:
    """As (source, target)."""
    return frozenset((source, target) for target, source in linked_TS.nonzero().tolist())


def as_mask(links: Links, shape: torch.Size) -> Tensor:
    """[T, S], True where linked."""
    mask_TS = torch.zeros(shape, dtype=torch.bool)
    if links:
        source, target = torch.tensor(sorted(links)).unbind(1)
        mask_TS[target, source] = True
    return mask_TS


class HeadScore(NamedTuple):
    """A candidate and how well it aligns."""

    head: Head
    scores: AlignmentScores


@final
class GoldTally:
    """Counts of every candidate against gold, sentence after sentence."""

    def __init__(self, heads: list[Head]) -> None:
        self.heads = heads
        self._counts_4C = torch.zeros(4, len(heads), dtype=torch.long)

    def add(self, linked_CTS: Tensor, gold: Gold) -> None:
        sure_TS, possible_TS = (as_mask(links, linked_CTS.shape[1:]) for links in gold)
        num_sure_C = sure_TS.sum().expand(len(self.heads))
        in_sure_C, in_possible_C = ((linked_CTS & mask_TS).sum((1, 2)) for mask_TS in (sure_TS, possible_TS))
        self._counts_4C += torch.stack([linked_CTS.sum((1, 2)), num_sure_C, in_sure_C, in_possible_C])

    def scores(self) -> list[HeadScore]:
        """In the order of the candidates."""
        return [
            HeadScore(head, AlignmentScores(*row))
            for head, row in zip(self.heads, self._counts_4C.T.tolist(), strict=True)
        ]


def best(scores: Sequence[HeadScore]) -> HeadScore:
    """The lowest AER; of equal ones the first."""
    return min(scores, key=lambda one: one.scores.aer)


class HeadAgreement(NamedTuple):
    """Two heads of opposite directions, and the F1 of one against the other: 2 |A & B| / (|A| + |B|)."""

    forward: Head
    backward: Head
    f1: float


@final
class AgreementTally:
    """How well each candidate agrees with each of the opposite direction, sentence after sentence."""

    def __init__(self, forward: list[Head], backward: list[Head]) -> None:
        self.forward, self.backward = forward, backward
        self._both_CD = torch.zeros(len(forward), len(backward))
        self._total_CD = torch.zeros(len(forward), len(backward))

    def add(self, forward_CTS: Tensor, backward_DST: Tensor) -> None:
        one_CN, other_DN = forward_CTS.flatten(1).float(), backward_DST.mT.flatten(1).float()
        self._both_CD += one_CN @ other_DN.mT
        self._total_CD += one_CN.sum(1)[:, None] + other_DN.sum(1)

    def best(self) -> HeadAgreement:
        f1_CD = 2 * self._both_CD / self._total_CD.clamp(min=1)
        index = int(f1_CD.argmax())
        row, column = divmod(index, len(self.backward))
        return HeadAgreement(self.forward[row], self.backward[column], float(f1_CD[row, column]))


class Coverage(NamedTuple):
    """A head, and the share of source words that its links reach."""

    head: Head
    share: float


@final
class CoverageTally:
    """How many source words each candidate's links reach: a head that looks at few places aligns few words."""

    def __init__(self, heads: list[Head]) -> None:
        self.heads = heads
        self._reached_C, self._num_words = torch.zeros(len(heads)), 0

    def add(self, linked_CTS: Tensor) -> None:
        self._reached_C += linked_CTS.any(1).sum(1)
        self._num_words += linked_CTS.shape[2]

    def best(self) -> Coverage:
        """The one that reaches most."""
        index = int(self._reached_C.argmax())
        return Coverage(self.heads[index], float(self._reached_C[index]) / max(1, self._num_words))
