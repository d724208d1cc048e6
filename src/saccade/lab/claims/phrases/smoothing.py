"""Label smoothing, and warm-up with norms behind or before the layers: what each does to a small translator."""

from __future__ import annotations

import math
import statistics
from typing import cast

import sacrebleu
import torch
from torch import nn

from saccade.decoding import BeamOptions, Stepper, search
from saccade.lab.claims.phrases import pairs, translator
from saccade.lab.claims.phrases.pairs import Ids, Phrases
from saccade.lab.claims.phrases.translator import LAYERS, TESTED, TRAIN
from saccade.lab.experiment import Check, Experiment, Measurements, Panel, Points

STEPS, FULL_STEPS = 600, 6000
SMOOTHING = 0.1
SHORT_STEPS, FULL_SHORT_STEPS, DEEP, WARMUP_STEPS, WINDOW = 160, 1600, 4, 80, 20
LONGEST = 24  # words of an output
NORMS = {"pre": "before", "post": "behind"}


def measure(seed: int, is_full: bool) -> Measurements:
    """Train without and with smoothing; then deeper ones with norms behind and before, with warm-up and without."""
    phrases = pairs.make(TRAIN, TESTED, seed)
    plain, smooth = (score(phrases, seed, share, FULL_STEPS if is_full else STEPS) for share in (0.0, SMOOTHING))
    num_steps = FULL_SHORT_STEPS if is_full else SHORT_STEPS
    curves: dict[str, Points] = {
        f"{title}, {'warm-up' if warmup else 'at once'}": learn(phrases, seed, norm, warmup, num_steps)
        for norm, title in NORMS.items()
        for warmup in (WARMUP_STEPS, 0)
    }
    last = {name: points[-1][1] for name, points in curves.items()}
    numbers = {
        "perplexity": smooth[0] / plain[0],
        "bleu": smooth[1] - plain[1],
        "post needs": last["behind, at once"] - last["behind, warm-up"],
        "pre needs": last["before, at once"] - last["before, warm-up"],
    }
    scores: dict[str, Points] = {
        "perplexity": [(0, plain[0]), (SMOOTHING, smooth[0])],
        "BLEU / 100": [(0, plain[1] / 100), (SMOOTHING, smooth[1] / 100)],
    }
    return Measurements({"smoothing": scores, "warm-up": curves}, numbers)


def score(phrases: Phrases, seed: int, smoothing: float, num_steps: int) -> tuple[float, float]:
    """Train with this smoothing; return the perplexity of held-out words, and BLEU."""
    torch.manual_seed(seed)
    network = translator.make_transformer(phrases)
    translator.train(network, phrases, seed, num_steps=num_steps, smoothing=smoothing)
    return math.exp(translator.examine(network, phrases).nats), bleu(network, phrases)


def learn(phrases: Phrases, seed: int, norm: str, warmup_steps: int, num_steps: int) -> Points:
    """Train a deeper one; return its loss by steps, in nats a word."""
    torch.manual_seed(seed)
    network = translator.make_transformer(phrases, norm=norm, num_layers=DEEP)
    losses = translator.train(
        network, phrases, seed, num_steps=num_steps, warmup_steps=warmup_steps, most_norm=math.inf
    )
    window = WINDOW * num_steps // SHORT_STEPS
    return [(end, statistics.mean(losses[end - window : end])) for end in range(window, num_steps + 1, window)]


def bleu(network: nn.Module, phrases: Phrases) -> float:
    """Write the held-out translations, the likeliest word at every step, and return their BLEU."""
    outputs = list[str]()
    for batch in translator.batch_tests(phrases):
        found = search(cast(Stepper, network), batch.source_BS, batch.source_length_B, BeamOptions(max_length=LONGEST))
        outputs += [_spell(row[0].ids) for row in found]
    references = [_spell(target) for _, target in phrases.test]
    return float(sacrebleu.BLEU(tokenize="none", force=True).corpus_score(outputs, [references]).score)


def _spell(ids: Ids | list[int]) -> str:
    """Write ids as words, as BLEU counts what is between spaces."""
    return " ".join(map(str, ids))


SMOOTH = Experiment(
    name="smoothing",
    question="Does label smoothing hurt perplexity and help BLEU, and who needs a warm-up?",
    claim="Label smoothing makes a model less sure, which hurts perplexity, and improves accuracy and BLEU. A "
    "Transformer with norms behind its layers (post-norm) needs a warm-up, one with norms before them (pre-norm) not.",
    source="Vaswani 2017, section 5.4; Xiong 2020, sections 3 and 4",
    setup=f"Small Transformers learn {TRAIN:,} pairs of the phrasebook; {TESTED} others are translated. {LAYERS} "
    f"layers a side, {STEPS} steps of {translator.BATCH} (--full: {FULL_STEPS}), with smoothing 0 and {SMOOTHING}. "
    f"Then {DEEP} layers a side, {SHORT_STEPS} steps (--full: {FULL_SHORT_STEPS}), norms behind or before, with "
    f"{WARMUP_STEPS} steps of warm-up or none, gradients not clipped, Adam's rate {translator.RATE} falling to 0.",
    prediction="Smoothing raises the perplexity of held-out words by at least a twentieth, and BLEU by 0 to 2 points. "
    "Post-norm without warm-up ends at least half a nat above post-norm with it; for pre-norm the two are within 0.1.",
    checks=(
        Check("perplexity", "smoothing multiplies the perplexity by", least=1.02),
        Check("bleu", "it changes BLEU by", least=0.0),
        Check("post needs", "post-norm ends higher without warm-up, by nats", least=0.3),
        Check("pre needs", "pre-norm does not", most=0.1),
    ),
    panels={
        "smoothing": Panel("Smoothing", "label smoothing", "perplexity, BLEU / 100"),
        "warm-up": Panel("Norms and warm-up", "step", "nats a word"),
    },
    measure=measure,
    minutes="five minutes",
    seeds=3,
)
