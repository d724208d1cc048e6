"""The scaling of the dot product by sqrt(d): its variance, the softmax over it, and how fast it learns, by width."""

from __future__ import annotations

import math
import statistics

import torch
from torch import Tensor, nn

from saccade.attention import SCORES, attend
from saccade.lab.experiment import Check, Experiment, Measurements, Panel, Points, slope
from saccade.lab.fit import fit

WIDTHS = (4, 16, 64, 256, 1024)
PAIRS, KEYS = 4096, 32
LEARNING_WIDTHS, FULL_LEARNING_WIDTHS = (16, 64, 256, 1024), (16, 32, 64, 128, 256, 512, 1024, 2048)
STEPS, FULL_STEPS, RATE, BATCH = 150, 600, 0.01, 32
WORDS, SHOWN = 64, 16
AVERAGED = 20  # last steps
NAMES = {"dot": "q·k", "scaled_dot": "q·k / sqrt(d)"}


def measure(seed: int, is_full: bool) -> Measurements:
    """Measure variance, saturation and learning of both dot products."""
    torch.manual_seed(seed)
    variances, largest, learned = dict[str, Points](), dict[str, Points](), dict[str, Points]()
    for name, title in NAMES.items():
        scores = {width: _draw_scores(name, width) for width in WIDTHS}
        variances[title] = [(width, float(score_NS.var())) for width, score_NS in scores.items()]
        largest[title] = [(width, float(score_NS.softmax(-1).amax(-1).mean())) for width, score_NS in scores.items()]
        widths, num_steps = (FULL_LEARNING_WIDTHS, FULL_STEPS) if is_full else (LEARNING_WIDTHS, STEPS)
        learned[title] = [(width, learn(name, width, seed, num_steps)) for width in widths]
    plain, scaled = NAMES.values()
    growth = slope([(math.log(width), math.log(value)) for width, value in variances[plain]])
    numbers = {
        "growth": growth,
        "scaled variance": variances[scaled][-1][1],
        "largest": largest[plain][-1][1],
        "scaled largest": largest[scaled][-1][1],
        "narrow": dict(learned[plain])[16],
        "wide": dict(learned[plain])[1024],
        "scaled wide": dict(learned[scaled])[1024],
    }
    return Measurements({"variance": variances, "largest": largest, "learned": learned}, numbers)


def _draw_scores(name: str, width: int) -> Tensor:
    """Score keys whose components have variance 1, as the queries' have: [N, S]."""
    query_N1D, key_NSD = torch.randn(PAIRS // KEYS, 1, width), torch.randn(PAIRS // KEYS, KEYS, width)
    score = SCORES[name](width, width)
    return score(query_N1D, score.memory(key_NSD)).squeeze(1)


def learn(name: str, width: int, seed: int, num_steps: int) -> float:
    """Learn to find the word that is asked for among others; return -log p of its place at the end, in nats."""
    torch.manual_seed(seed)
    key_of, query_of, score = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width), SCORES[name](width, width)
    place_SS = torch.eye(SHOWN)

    def draw_loss() -> Tensor:
        shown_BS = torch.stack([torch.randperm(WORDS)[:SHOWN] for _ in range(BATCH)])
        place_B1 = torch.randint(SHOWN, (BATCH, 1))
        query_B1D = query_of(shown_BS.gather(1, place_B1))
        weight_BS = attend(query_B1D, key_of(shown_BS), place_SS.expand(BATCH, -1, -1), score=score).squeeze(1)
        return -weight_BS.gather(1, place_B1).clamp_min(1e-9).log().mean()

    losses = fit(
        [*key_of.parameters(), *query_of.parameters(), *score.parameters()], draw_loss, num_steps=num_steps, rate=RATE
    )
    return statistics.mean(losses[-AVERAGED:])


SCALE = Experiment(
    name="scale",
    question="Why is the dot product of a query and a key divided by sqrt(d)?",
    claim="If the components of q and k have variance 1, q·k has variance d. Large scores push softmax to where its "
    "gradient is tiny, so learning slows with the width; dividing by sqrt(d) prevents this.",
    source="Vaswani 2017, section 3.2.1 and footnote 4",
    setup=f"Normal queries and keys, {KEYS} keys a query. Then {STEPS} steps of Adam (--full: {FULL_STEPS}) on a task "
    f"that one attention can solve: {SHOWN} of {WORDS} words are shown, and the place of the one that is asked for is "
    f"to be found; a blind guess has {math.log(SHOWN):.2f} nats.",
    prediction="The variance grows as d; at width 1024 one key gets nearly all the weight before anything is learned, "
    "and the unscaled product is worse than a guess after its steps, while the scaled one has found the place. At "
    "width 16 both learn.",
    checks=(
        Check("growth", "the variance of q·k grows as d to the power of", least=0.95, most=1.05),
        Check("scaled variance", "divided by sqrt(d) it stays 1: at d = 1024 it is", least=0.9, most=1.1),
        Check("largest", "at d = 1024 the largest of 32 weights of q·k is, on average, nearly 1", least=0.9),
        Check("scaled largest", "that of q·k / sqrt(d) is far from it", most=0.4),
        Check("narrow", "at width 16 q·k learns: nats at the end", most=1.0),
        Check("wide", "at width 1024 it is worse than a guess", least=math.log(SHOWN)),
        Check("scaled wide", "there q·k / sqrt(d) learns", most=0.1),
    ),
    panels={
        "variance": Panel("Variance of the score", "width d", "variance", log_across=True, log_up=True),
        "largest": Panel("Largest of 32 weights", "width d", "weight", log_across=True),
        "learned": Panel("Loss after learning", "width d", "nats", log_across=True, log_up=True),
    },
    measure=measure,
    minutes="half a minute",
)
