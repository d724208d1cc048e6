"""Pairs of texts and a model: the links that its heads make, and which of them makes the best."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.data.text.corpus import Corpus, Pair, clean, kind_of, read_raw_lines
from saccade.errors import UserError
from saccade.inspection.align.heads import (
    AgreementTally,
    Coverage,
    CoverageTally,
    GoldTally,
    HeadAgreement,
    HeadScore,
    all_weights,
    candidates,
    linked,
    links_of,
)
from saccade.inspection.align.links import Gold, Links, reverse
from saccade.inspection.insight import Head
from saccade.tasks.translate.predictor import Translator
from saccade.tasks.translate.word_weights import num_layers_and_heads, word_weights

BAR = " ||| "


def read_pairs(source: Path, target: Path | None) -> Iterator[Pair]:
    """Two line-aligned files, or one with both sides: `source ||| target`, TSV or JSONL."""
    if target is not None or kind_of(source) in (".tsv", ".jsonl"):
        return Corpus(str(source), None if target is None else str(target)).pairs()
    return _with_bars(source)


def _with_bars(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_raw_lines(path), 1):
        sides = line.rstrip("\r\n").split(BAR)
        if len(sides) != 2:
            raise UserError(f"{path}:{number}: not 'source ||| target'; for two files give --target too")
        yield Pair(*map(clean, sides))


def turned(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Pairs as a model of the opposite direction reads them."""
    return (Pair(pair.target, pair.source) for pair in pairs)


class Aligner(NamedTuple):
    """A model and the head of it that aligns."""

    translator: Translator
    head: Head

    def weights(self, pairs: Iterable[Pair]) -> Iterator[Tensor]:
        """What it weighs, pair by pair, [T, S] by words with </s> last on both sides."""
        return (weight_1TS[0] for weight_1TS in word_weights(self.translator, pairs, self._pick))

    def _pick(self, weight_BLHTS: Tensor) -> Tensor:
        return torch.stack([self.head.of(weight_LHTS) for weight_LHTS in weight_BLHTS])[:, None]


def aligned(aligner: Aligner, pairs: Iterable[Pair]) -> Iterator[Links]:
    """The links that a head makes, pair by pair."""
    return (links_of(linked(weight_TS)) for weight_TS in aligner.weights(pairs))


def aligned_jointly(forward: Aligner, backward: Aligner, pairs: Iterable[Pair]) -> Iterator[tuple[Links, Links]]:
    """Links of target words, and links of source words, each by the product of what both directions weigh."""
    there, back = itertools.tee(pairs)
    for weight_TS, weight_ST in zip(forward.weights(there), backward.weights(turned(back)), strict=True):
        joint_TS = weight_TS * weight_ST.mT
        yield links_of(linked(joint_TS)), reverse(links_of(linked(joint_TS.mT)))


def against_gold(translator: Translator, pairs: Iterable[Pair], gold: Sequence[Gold]) -> list[HeadScore]:
    """Every head of a run as an aligner of these pairs."""
    tally = GoldTally(candidates(*num_layers_and_heads(translator)))
    for weight_CTS, true in zip(word_weights(translator, pairs, all_weights), gold, strict=True):
        tally.add(linked(weight_CTS), true)
    return tally.scores()


def agreement(forward: Translator, backward: Translator, pairs: Sequence[Pair]) -> HeadAgreement:
    """The two heads of opposite directions that agree most about these pairs."""
    tally = AgreementTally(*(candidates(*num_layers_and_heads(run)) for run in (forward, backward)))
    both = word_weights(forward, pairs, all_weights), word_weights(backward, turned(pairs), all_weights)
    for forward_CTS, backward_DST in zip(*both, strict=True):
        tally.add(linked(forward_CTS), linked(backward_DST))
    return tally.best()


def coverage(translator: Translator, pairs: Iterable[Pair]) -> Coverage:
    """The head whose links reach most source words of these pairs."""
    tally = CoverageTally(candidates(*num_layers_and_heads(translator)))
    for weight_CTS in word_weights(translator, pairs, all_weights):
        tally.add(linked(weight_CTS))
    return tally.best()
