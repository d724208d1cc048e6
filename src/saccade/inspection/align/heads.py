"""Scores every head as a word aligner: against gold, by agreement of two directions, or by coverage.

Weights are by words, [..., T, S] with </s> last on both sides. The step that reads a word often aligns it better than
the step that writes it (Chen 2020). So every head is two candidates, with shift 0 and with shift 1, and so is the mean
of each layer's heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from saccade.inspection.align.links import AlignmentScores, Gold, Links
from saccade.inspection.insight import Head

SHIFTS = (0, 1)


def list_candidates(num_layers: int, num_heads: int) -> list[Head]:
    """List all candidates of a model: every head and every layer's mean, at both shifts."""
    heads = [*range(num_heads), None]
    return [Head(layer, head, shift) for shift in SHIFTS for layer in range(num_layers) for head in heads]


def stack_candidate_weights(weight_BLHTS: Tensor) -> Tensor:
    """Return the weights of every candidate, [B, C, T, S]; the row of </s> has no meaning."""
    weight_BLHTS = torch.cat([weight_BLHTS, weight_BLHTS.mean(2, keepdim=True)], 2)
    return torch.stack([weight_BLHTS.roll(-shift, -2) for shift in SHIFTS], 1).flatten(1, 3)


def link_words(weight_TS: Tensor) -> Tensor:
    """Link each target word to its source word of greatest weight, never </s>; return [..., T, S], True where linked.

    A word whose weights are all 0 gets no link.
    """
    weight_TS = weight_TS[..., :-1, :-1].nan_to_num()
    if not weight_TS.numel():
        return weight_TS.bool()
    greatest_T, source_T = weight_TS.max(-1, keepdim=True)
    return torch.zeros_like(weight_TS, dtype=torch.bool).scatter(-1, source_T, greatest_T > 0)


def list_links(linked_TS: Tensor) -> Links:
    """Convert a mask of links to pairs (source, target)."""
    return frozenset((source, target) for target, source in linked_TS.nonzero().tolist())


def make_link_mask(links: Links, shape: torch.Size) -> Tensor:
    """Convert links to a mask [T, S] that is True where two words are linked."""
    mask_TS = torch.zeros(shape, dtype=torch.bool)
    if links:
        source, target = torch.tensor(sorted(links)).unbind(1)
        mask_TS[target, source] = True
    return mask_TS


class HeadScore(NamedTuple):
    """A candidate and its scores against gold."""

    head: Head
    scores: AlignmentScores


@final
class GoldTally:
    """Counts the links of every candidate against gold, one sentence after another."""

    def __init__(self, heads: list[Head]) -> None:
        self.heads = heads
        self._counts_4C = torch.zeros(4, len(heads), dtype=torch.long)

    def add(self, linked_CTS: Tensor, gold: Gold) -> None:
        sure_TS, possible_TS = (make_link_mask(links, linked_CTS.shape[1:]) for links in gold)
        num_sure_C = sure_TS.sum().expand(len(self.heads))
        in_sure_C, in_possible_C = ((linked_CTS & mask_TS).sum((1, 2)) for mask_TS in (sure_TS, possible_TS))
        self._counts_4C += torch.stack([linked_CTS.sum((1, 2)), num_sure_C, in_sure_C, in_possible_C])

    def scores(self) -> list[HeadScore]:
        """Return the scores in the order of the candidates."""
        return [
            HeadScore(head, AlignmentScores(*row))
            for head, row in zip(self.heads, self._counts_4C.T.tolist(), strict=True)
        ]


def find_best_head(scores: Sequence[HeadScore]) -> HeadScore:
    """Find the head with the lowest AER; the first one wins a tie."""
    return min(scores, key=lambda one: one.scores.aer)


class HeadAgreement(NamedTuple):
    """Two heads of opposite directions, and the F1 of one against the other: 2 |A & B| / (|A| + |B|)."""

    forward: Head
    backward: Head
    f1: float


@final
class AgreementTally:
    """Counts how many links each candidate shares with each candidate of the opposite direction."""

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
    """Counts the source words that each candidate's links reach: a head that looks at few places aligns few words."""

    def __init__(self, heads: list[Head]) -> None:
        self.heads = heads
        self._reached_C, self._num_words = torch.zeros(len(heads)), 0

    def add(self, linked_CTS: Tensor) -> None:
        self._reached_C += linked_CTS.any(1).sum(1)
        self._num_words += linked_CTS.shape[2]

    def best(self) -> Coverage:
        """Return the candidate that reaches most source words."""
        index = int(self._reached_C.argmax())
        return Coverage(self.heads[index], float(self._reached_C[index]) / max(1, self._num_words))
