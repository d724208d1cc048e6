"""`saccade look --align`: word alignments of a whole file, and which head makes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from saccade.config import aligning
from saccade.data.corpus import Corpus, Pair, clean, kind_of, text_lines
from saccade.data.mistakes import Mistake
from saccade.inspection.aligning_heads import (
    Agreement,
    AgreementTally,
    GoldTally,
    all_weights,
    candidates,
    linked,
    links_of,
)
from saccade.inspection.gold_alignments import read_gold
from saccade.inspection.insight import Head
from saccade.inspection.word_alignment import SYMMETRIZERS, Gold, Links, Scores, reverse, scored
from saccade.look.word_weights import word_weights
from saccade.tasks.translate import Translator

BAR = " ||| "
ENOUGH = 1000  # pairs to choose heads by, where there is no gold


def read_pairs(source: Path, target: Path | None) -> Iterator[Pair]:
    """Two line-aligned files, or one with both sides: `source ||| target`, TSV or JSONL."""
    if target is not None or kind_of(source) in (".tsv", ".jsonl"):
        return Corpus(str(source), None if target is None else str(target)).pairs()
    return _with_bars(source)


def _with_bars(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(text_lines(path), 1):
        sides = line.rstrip("\r\n").split(BAR)
        if len(sides) != 2:
            raise Mistake(f"{path}:{number}: not 'source ||| target'; for two files give --target too")
        yield Pair(*map(clean, sides))


def turned(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Pairs as a model of the opposite direction reads them."""
    return (Pair(pair.target, pair.source) for pair in pairs)


def aligned(translator: Translator, head: Head, pairs: Iterable[Pair]) -> Iterator[Links]:
    """The links that a head makes, pair by pair."""

    def pick(weight_BLHTS: Tensor) -> Tensor:
        return torch.stack([head.of(weight_LHTS) for weight_LHTS in weight_BLHTS])[:, None]

    return (links_of(linked(weight_1TS)[0]) for weight_1TS in word_weights(translator, pairs, pick))


def against_gold(translator: Translator, pairs: Sequence[Pair], gold: Sequence[Gold]) -> GoldTally:
    """Every head of a run as an aligner of these pairs."""
    tally = GoldTally(heads_of(translator))
    for weight_CTS, true in zip(word_weights(translator, pairs, all_weights), gold, strict=True):
        tally.add(linked(weight_CTS), true)
    return tally


def agreement(forward: Translator, backward: Translator, pairs: Sequence[Pair]) -> Agreement:
    """The two heads of opposite directions that agree most about these pairs."""
    tally = AgreementTally(heads_of(forward), heads_of(backward))
    both = word_weights(forward, pairs, all_weights), word_weights(backward, turned(pairs), all_weights)
    for forward_CTS, backward_DST in zip(*both, strict=True):
        tally.add(linked(forward_CTS), linked(backward_DST))
    return tally.best()
