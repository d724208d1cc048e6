"""Do heads specialise, and how many are needed? Roles of a small Transformer's heads, and pruning them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from saccade.attention import MultiHeadAttention
from saccade.inspection.record import find_attention, recording
from saccade.lab.claims.phrases import pairs, translator
from saccade.lab.claims.phrases.pairs import Phrases
from saccade.lab.claims.phrases.translator import HEADS, LAYERS, TESTED, TRAIN
from saccade.lab.experiment import Check, Experiment, Measurements, Panel

STEPS, FULL_STEPS = 1500, 15_000
KINDS = {"encoder": "encoder", "decoder": "decoder", "cross": "on the source"}
LOSS = 0.005  # share of right words that may be lost


class HeadPlace(NamedTuple):
    """A head: the attention it belongs to, and its number there."""

    attention: MultiHeadAttention
    head: int


def measure(seed: int, is_full: bool) -> Measurements:
    """Train a translator, measure what its heads look at, and prune them, one alone and then more and more."""
    torch.manual_seed(seed)
    phrases = pairs.make(TRAIN, TESTED, seed)
    network = translator.make_transformer(phrases)
    untrained = max(find_position_shares(network, phrases))
    translator.train(network, phrases, seed, num_steps=FULL_STEPS if is_full else STEPS)
    positions, links = find_position_shares(network, phrases), max_over_shifts(find_link_shares(network, phrases))
    whole = translator.examine(network, phrases).right
    lost = {
        kind: [whole - score_without(network, phrases, [head]) for head in list_heads(network, kind)] for kind in KINDS
    }
    together = prune_together(network, phrases, lost)
    alone = [value for values in lost.values() for value in values]
    free = [number for number, right in together if right >= whole - 2 * LOSS]
    numbers = {
        "position": max(positions),
        "position learned": max(positions) - untrained,
        "alignment": max(links),
        "aligns more": max(links) - statistics.median(links),
        "alone": statistics.mean(value <= LOSS for value in alone),
        "most": max(alone),
        "together": max(free) / len(alone),
    }
    ranked = {title: list(enumerate(sorted(lost[kind], reverse=True), 1)) for kind, title in KINDS.items()}
    return Measurements({"alone": ranked, "together": {"least needed first": together}}, numbers)


def list_heads(network: nn.Module, kind: str) -> list[HeadPlace]:
    """List the heads of all layers of a kind."""
    found = find_attention(network, (kind,)).values()
    return [HeadPlace(one, head) for one in found if isinstance(one, MultiHeadAttention) for head in range(HEADS)]


@contextmanager
def disable_heads(heads: Sequence[HeadPlace]) -> Iterator[None]:
    """Take the output of these heads away inside the block: their columns of W^O are 0."""
    kept = {one.attention: one.attention.output.weight.detach().clone() for one in heads}
    try:
        for attention, head in heads:
            attention.output.weight.data.unflatten(1, (HEADS, -1))[:, head] = 0.0
        yield
    finally:
        for attention, weight_DD in kept.items():
            attention.output.weight.data.copy_(weight_DD)


def score_without(network: nn.Module, phrases: Phrases, heads: Sequence[HeadPlace]) -> float:
    """Return the share of right words without these heads."""
    with disable_heads(heads):
        return translator.examine(network, phrases).right


def prune_together(network: nn.Module, phrases: Phrases, lost: dict[str, list[float]]) -> list[tuple[float, float]]:
    """Prune more and more heads, those first that cost least alone; return the share of right words by their number."""
    heads = [(cost, head) for kind in KINDS for cost, head in zip(lost[kind], list_heads(network, kind), strict=True)]
    order = [head for _, head in sorted(heads, key=lambda one: one[0])]
    return [(number, score_without(network, phrases, order[:number])) for number in range(len(order) + 1)]


@torch.no_grad()
def find_position_shares(network: nn.Module, phrases: Phrases) -> list[float]:
    """Return for each head of the encoder how often it looks most at the word before, or else at the one behind."""
    counts_HO, total = torch.zeros(LAYERS * HEADS, 2), 0
    for source, target in phrases.test:
        batch = pairs.collate([(source, target)])
        with recording(network, kinds=("encoder",)) as record:
            network(batch.source_BS, batch.source_length_B, batch.read_BT)
        most_HS = record.weights("encoder")[:, 0].flatten(0, 1).argmax(-1)[:, 1:-1]  # words with both neighbours
        place_S = torch.arange(1, 1 + most_HS.shape[1])
        counts_HO += torch.stack([(most_HS == place_S + offset).sum(1) for offset in (-1, 1)], 1)
        total += len(place_S)
    return (counts_HO.amax(1) / total).tolist()


@torch.no_grad()
def find_link_shares(network: nn.Module, phrases: Phrases) -> Tensor:
    """Return how often each head looks most at the word that the dictionary links, [shift, L, H + 1].

    Shift 0 is the step that writes the word, shift 1 the one that reads it. The last column is the mean of a layer's
    heads. Only words with a link count.
    """
    hits, total = torch.zeros(()), 0
    for source, target in phrases.test:
        links = sorted(phrases.link(source, target))
        batch = pairs.collate([(source, target)])
        with recording(network, kinds=("cross",)) as record:
            network(batch.source_BS, batch.source_length_B, batch.read_BT)
        weight_LHTS = record.weights("cross")[:, 0]
        weight_LHTS = torch.cat([weight_LHTS, weight_LHTS.mean(1, keepdim=True)], 1)
        most_LHT = weight_LHTS[..., : len(source)].argmax(-1)  # never </s>
        for own, other in links:
            hits = hits + torch.stack([most_LHT[..., other + shift] == own for shift in (0, 1)]).float()
        total += len(links)
    return hits / total


def max_over_shifts(shares: Tensor) -> list[float]:
    """Return each head's better share of the two shifts; layers' means are left out."""
    return [float(share) for share in shares[..., :-1].amax(0).flatten()]


HEADS_CLAIM = Experiment(
    name="heads",
    question="Do heads specialise, and can the others be pruned?",
    claim="Heads take roles: some look at a neighbouring word, some at the word that is being translated. Most can be "
    "pruned alone without loss, and a good part together; a few matter much.",
    source="Voita 2019, sections 5 and 6; Michel 2019, sections 3 and 4",
    setup=f"A Transformer of {LAYERS} layers a side, {HEADS} heads a layer, learns {TRAIN:,} pairs of the phrasebook, "
    f"{STEPS} steps of {translator.BATCH} (--full: {FULL_STEPS}); {TESTED} others test it. A head's role is how often "
    "it looks most at the word before or behind (encoder), or at the word that a dictionary of words that always meet "
    f"links (on the source). A pruned head gives 0. Without loss: at most {100 * LOSS:g}% fewer words are right, the "
    f"words before them given; {200 * LOSS:g}% for many together. Syntax is not looked for: that takes a parser.",
    prediction="One head of the encoder looks at a neighbour for at least 70% of the words, one on the source at the "
    "linked word for at least 80% and 0.3 more often than the median head. At least half of all heads can be pruned "
    "alone without loss, the one that matters most costs at least 5% of the words, and a fifth can go together.",
    checks=(
        Check("position", "a head of the encoder looks most at a neighbour, for a share of", least=0.6),
        Check("position learned", "which is more than before training, by", least=0.1),
        Check("alignment", "a head on the source looks most at the linked word, for a share of", least=0.7),
        Check("aligns more", "which is more than the median head's, by", least=0.2),
        Check("alone", "a share of heads can be pruned alone without loss", least=0.5),
        Check("most", "the head that matters most costs a share of right words", least=0.03),
        Check("together", "a share of heads can be pruned together", least=0.2),
    ),
    panels={
        "alone": Panel("Lost without one head", "head, the dearest first", "share of right words lost"),
        "together": Panel("Several heads pruned", "heads pruned", "share of right words"),
    },
    measure=measure,
    minutes="three minutes",
    seeds=3,
)
