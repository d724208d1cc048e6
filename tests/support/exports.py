"""Small models that are exported, untrained, and pairs to compare them on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from torch import nn

from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import SPECIAL, SentencePiece, Tokenizer, Vocabulary
from saccade.decoding import BeamOptions
from saccade.models.transformer import BlockSizes, Transformer
from saccade.tasks.base import Portable, ScoredSet

SOURCE, TARGET = Vocabulary([*SPECIAL, *"abcdefghijk"], "words"), Vocabulary([*SPECIAL, *"klmnopq"], "words")
PHRASE = "der alte Hund und die kleine Katze schlafen im Haus , aber der Baum steht allein ."
SIZES = {"width": 24, "num_heads": 3, "hidden_width": 20}


def transformer(
    *, tied: str = "two", vocabularies: tuple[Tokenizer, Tokenizer] = (SOURCE, TARGET), **sizes: Any
) -> Transformer:
    """Build a Transformer whose parameters are all random, biases and norms too."""
    source, target = vocabularies
    network = Transformer(
        source=source.size,
        target_vocabulary=target.size,
        sizes=BlockSizes(**{**SIZES, **sizes}),
        num_encoder_layers=2,
        num_decoder_layers=2,
        share_embeddings=tied == "three",
        share_output=tied != "none",
        max_length=64,
    )
    for parameter in network.parameters():
        if parameter.dim() == 1 or parameter.std() == 0:
            nn.init.normal_(parameter, mean=float(parameter.flatten()[0].detach()), std=0.3)
    return network.eval()


@cache
def pieces(kind: str = "unigram") -> SentencePiece:
    """Train a tokenizer on a few words."""
    texts = [" ".join(random.Random(seed).choices(PHRASE.split(), k=6)) for seed in range(60)]
    return SentencePiece.train(
        kind,
        texts if kind == "unigram" else [text.upper() for text in texts],
        {"unigram": 290, "bpe": 294}[kind],
        seed=1,
    )


def phrases(count: int, *, shout: bool = False) -> ScoredSet:
    """Draw pairs of such words, and one with letters that only bytes spell; `shout`: targets for the other kind."""
    texts = [
        "naïve 😀 Ça",
        *(" ".join(random.Random(100 + seed).choices(PHRASE.split(), k=1 + seed)) for seed in range(count)),
    ]
    pairs = [Pair(*both) for both in itertools.pairwise(texts)]
    return ScoredSet("phrases", [Pair(one, other.upper() if shout else other) for one, other in pairs])


def portable(network: nn.Module, source: Any = SOURCE, target: Any = TARGET, **more: Any) -> Portable:
    options = more.pop("options", BeamOptions())
    return Portable(network, source, target, options, 50, more.pop("score", score), **more)


def score(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Stand in for BLEU: the share of outputs that are right."""
    return {"bleu": 100 * sum(map(str.__eq__, outputs, references)) / len(references)}


def random_pairs(
    count: int, vocabularies: tuple[Vocabulary, Vocabulary] = (SOURCE, TARGET), longest: int = 12
) -> ScoredSet:
    """Draw pairs of many lengths."""
    draw = random.Random(1)
    sides = [
        [" ".join(draw.choices(one.symbols[len(SPECIAL) :], k=draw.randint(1, longest))) for _ in range(count)]
        for one in vocabularies
    ]
    return ScoredSet("random", [Pair(*both) for both in zip(*sides, strict=True)])
