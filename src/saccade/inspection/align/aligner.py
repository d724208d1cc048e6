"""Links pairs of texts by the weights of a model's heads, and finds the head whose links are best."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from torch import Tensor

from saccade.data.text.corpus import BY_NAME, Corpus, Pair, PairColumns, clean, read_raw_lines
from saccade.data.text.tables import has_columns
from saccade.errors import UserError
from saccade.inspection.align.heads import (
    AgreementTally,
    Coverage,
    CoverageTally,
    GoldTally,
    HeadAgreement,
    HeadScore,
    link_words,
    list_candidates,
    list_links,
    stack_candidate_weights,
)
from saccade.inspection.align.links import Gold, Links, reverse
from saccade.inspection.insight import Head

BAR = " ||| "
Pick = Callable[[Tensor], Tensor]  # from weights [B, L, H, T, S] to those that are wanted, [B, C, T, S]


class WordAttention(Protocol):
    """A model's attention from the words of a target to those of its source."""

    def num_layers_and_heads(self) -> tuple[int, int]:
        """Count what there is to choose from."""

    def weights(self, pairs: Iterable[Pair], pick: Pick) -> Iterator[Tensor]:
        """Yield for each pair the picked weights by words, [C, target words + 1, source words + 1].

        </s> is last on both sides. Words are what white space separates.
        """

    def head_weights(self, pairs: Iterable[Pair], head: Head) -> Iterator[Tensor]:
        """Yield what one head weighs, pair by pair, [T, S] by words as above; what it doesn't need is not computed."""


class Aligner(NamedTuple):
    """A model's attention, and the head of it that aligns."""

    attention: WordAttention
    head: Head

    def links(self, pairs: Iterable[Pair]) -> Iterator[Links]:
        """Yield the links that the head makes, pair by pair."""
        return (list_links(link_words(weight_TS)) for weight_TS in self.weights(pairs))

    def weights(self, pairs: Iterable[Pair]) -> Iterator[Tensor]:
        """Yield what the head weighs, pair by pair, [T, S] by words with </s> last on both sides."""
        return self.attention.head_weights(pairs, self.head)


def link_jointly(forward: Aligner, backward: Aligner, pairs: Iterable[Pair]) -> Iterator[tuple[Links, Links]]:
    """Link target words, and link source words, each by the product of what both directions weigh."""
    there, back = itertools.tee(pairs)
    for weight_TS, weight_ST in zip(forward.weights(there), backward.weights(swap(back)), strict=True):
        joint_TS = weight_TS * weight_ST.mT
        yield list_links(link_words(joint_TS)), reverse(list_links(link_words(joint_TS.mT)))


def score_heads(attention: WordAttention, pairs: Iterable[Pair], gold: Sequence[Gold]) -> list[HeadScore]:
    """Score every head of a model as an aligner of these pairs."""
    tally = GoldTally(list_candidates(*attention.num_layers_and_heads()))
    for weight_CTS, true in zip(attention.weights(pairs, stack_candidate_weights), gold, strict=True):
        tally.add(link_words(weight_CTS), true)
    return tally.scores()


def find_agreement(forward: WordAttention, backward: WordAttention, pairs: Sequence[Pair]) -> HeadAgreement:
    """Find the two heads of opposite directions that agree most about these pairs."""
    tally = AgreementTally(*(list_candidates(*one.num_layers_and_heads()) for one in (forward, backward)))
    both = forward.weights(pairs, stack_candidate_weights), backward.weights(swap(pairs), stack_candidate_weights)
    for forward_CTS, backward_DST in zip(*both, strict=True):
        tally.add(link_words(forward_CTS), link_words(backward_DST))
    return tally.best()


def find_coverage(attention: WordAttention, pairs: Iterable[Pair]) -> Coverage:
    """Find the head whose links reach most source words of these pairs."""
    tally = CoverageTally(list_candidates(*attention.num_layers_and_heads()))
    for weight_CTS in attention.weights(pairs, stack_candidate_weights):
        tally.add(link_words(weight_CTS))
    return tally.best()


def swap(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Turn pairs into those that a model of the opposite direction reads."""
    return (Pair(pair.target, pair.source) for pair in pairs)


def read_pairs(source: Path, target: Path | None, columns: PairColumns = BY_NAME) -> Iterator[Pair]:
    """Read two line-aligned files, or one with both sides: `source ||| target`, TSV, CSV or JSONL."""
    if target is not None or has_columns(source):
        return Corpus(str(source), None if target is None else str(target), columns=columns).pairs()
    return _read_barred(source)


def _read_barred(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_raw_lines(path), 1):
        sides = line.rstrip("\r\n").split(BAR)
        if len(sides) != 2:
            raise UserError(f"{path}:{number}: not 'source ||| target'; for two files give --target too")
        yield Pair(*map(clean, sides))
