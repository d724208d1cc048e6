"""The cost of picking one key: gradients of hard attention, and learning beside soft and sparse attention."""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import attend
from saccade.attention.normalizers import Entmax15, Hard, Softmax, Sparsemax
from saccade.lab.experiment import Check, Experiment, Measurements, Panel, Points
from saccade.lab.fit import fit

WIDTH, WORDS, SHOWN, LABELS = 32, 32, 8, 8
STEPS, FULL_STEPS, BATCH, RATE, EVERY = 600, 6000, 64, 0.005, 30
DRAWS, QUERIES = 500, 32
KEPT = 0.9  # of the running mean of rewards, the baseline


class Method(NamedTuple):
    """A way to make weights, and for hard ones a way to learn."""

    normalizer: nn.Module
    reinforces: bool = False
    has_baseline: bool = False


def list_methods() -> dict[str, Method]:
    """Return all ways by their names."""
    return {
        "softmax": Method(Softmax()),
        "1.5-entmax": Method(Entmax15()),
        "sparsemax": Method(Sparsemax()),
        "hard, Gumbel": Method(Hard("straight_through")),
        "hard, baseline": Method(Hard(), reinforces=True, has_baseline=True),
        "hard, no baseline": Method(Hard(), reinforces=True),
    }


def measure(seed: int, is_full: bool) -> Measurements:
    """Measure bias and variance of the three gradients of hard attention, and the loss of all ways by steps."""
    torch.manual_seed(seed)
    variances, biases = measure_gradients()
    num_steps = FULL_STEPS if is_full else STEPS
    curves = {name: learn(way, seed, num_steps) for name, way in list_methods().items()}
    last = {name: points[-1][1] for name, points in curves.items()}
    soft, hard, bare = last["softmax"], last["hard, baseline"], last["hard, no baseline"]
    numbers = {
        "baseline": variances["hard, no baseline"] / variances["hard, baseline"],
        "gumbel": variances["hard, Gumbel"] / variances["hard, baseline"],
        "unbiased": biases["hard, baseline"],
        "gumbel bias": biases["hard, Gumbel"],
        "soft first": hard - soft,
        "bare last": bare - hard,
        "sparse": max(last["1.5-entmax"], last["sparsemax"]) - soft,
    }
    return Measurements({"learned": curves}, numbers)


def measure_gradients() -> tuple[dict[str, float], dict[str, float]]:
    """Return variance and bias of d E[reward] / d query by draws, both over the square of the true gradient.

    A right pick is rewarded with 0, a wrong one with log of the guess, as log p of an answer would be.
    """
    query_N1D, key_NSD = torch.randn(QUERIES, 1, WIDTH, requires_grad=True), torch.randn(QUERIES, SHOWN, WIDTH)
    reward_NS1 = torch.full((QUERIES, SHOWN, 1), -math.log(SHOWN))
    reward_NS1[:, 0] = 0.0
    exact = torch.autograd.grad(attend(query_N1D, key_NSD, reward_NS1).sum(), query_N1D)[0]
    mean_N11 = attend(query_N1D, key_NSD, reward_NS1).detach()
    size = float(exact.square().sum())
    variances, biases = dict[str, float](), dict[str, float]()
    for name, way in list_methods().items():
        if not isinstance(way.normalizer, Hard):
            continue
        drawn = torch.stack([_draw_gradient(way, query_N1D, key_NSD, reward_NS1, mean_N11) for _ in range(DRAWS)])
        mean = drawn.mean(0)
        variances[name] = float((drawn - mean).square().sum(dim=(1, 2, 3)).mean()) / size
        chance = variances[name] / DRAWS  # of the mean of draws
        biases[name] = math.sqrt(max(0.0, float((mean - exact).square().sum()) / size - chance))
    return variances, biases


def _draw_gradient(way: Method, query_N1D: Tensor, key_NSD: Tensor, reward_NS1: Tensor, mean_N11: Tensor) -> Tensor:
    reward_N11, log_p_N1 = attend(
        query_N1D, key_NSD, reward_NS1, normalizer=way.normalizer, return_log_probability=True
    )
    if not way.reinforces:
        return torch.autograd.grad(reward_N11.sum(), query_N1D)[0]
    worth_N1 = (reward_N11 - mean_N11 if way.has_baseline else reward_N11).detach().squeeze(-1)
    return torch.autograd.grad((worth_N1 * log_p_N1).sum(), query_N1D)[0]


def learn(way: Method, seed: int, num_steps: int) -> Points:
    """Learn to tell the label that stands beside the word that is asked for; return the loss by steps, in nats."""
    torch.manual_seed(seed)
    key_of, query_of = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)
    value_of, output = nn.Embedding(LABELS, WIDTH), nn.Linear(WIDTH, LABELS)
    baseline = -math.log(LABELS)
    shown = list[float]()

    def draw_loss() -> Tensor:
        nonlocal baseline
        word_BS = torch.rand(BATCH, WORDS).argsort(1)[:, :SHOWN]
        label_BS, place_B1 = torch.randint(LABELS, (BATCH, SHOWN)), torch.randint(SHOWN, (BATCH, 1))
        key_BSD, query_B1D = key_of(word_BS), query_of(word_BS.gather(1, place_B1))
        found = attend(
            query_B1D, key_BSD, value_of(label_BS), normalizer=way.normalizer, return_log_probability=way.reinforces
        )
        read_B1D, log_p_B1 = found if isinstance(found, tuple) else (found, None)
        loss_B = F.cross_entropy(output(read_B1D).squeeze(1), label_BS.gather(1, place_B1).squeeze(1), reduction="none")
        shown.append(float(loss_B.detach().mean()))
        if log_p_B1 is None:
            return loss_B.mean()
        worth_B = -loss_B.detach() - (baseline if way.has_baseline else 0.0)
        baseline = KEPT * baseline - (1 - KEPT) * shown[-1]
        return (loss_B - worth_B * log_p_B1.squeeze(1)).mean()

    parts = (key_of, query_of, value_of, output)
    fit([weight for part in parts for weight in part.parameters()], draw_loss, num_steps=num_steps, rate=RATE)
    window = num_steps * EVERY // STEPS
    return [(end, statistics.mean(shown[end - window : end])) for end in range(window, num_steps + 1, window)]


HARD = Experiment(
    name="hard",
    question="What does it cost to pick one key instead of weighing all?",
    claim="Hard attention learns by REINFORCE, whose gradient varies much; a baseline makes it vary less, unbiased; "
    "Gumbel's straight-through gradient varies less still, and is biased. Soft attention learns fastest, sparse "
    "attention lies between.",
    source="Xu 2015, section 4; Jang 2017, section 2.2; Martins & Astudillo 2016; Peters 2019",
    setup=f"Gradients for {QUERIES} random queries and {SHOWN} keys each, {DRAWS} draws, beside the true gradient; a "
    f"right pick is worth 0, a wrong one -log {SHOWN}. Then {STEPS} steps (--full: {FULL_STEPS}) of a task: {SHOWN} of "
    f"{WORDS} words are shown, each beside a label, and the label of the one that is asked for is to be told; a guess "
    f"has {math.log(LABELS):.2f} nats. The baseline is a running mean.",
    prediction="The baseline divides the variance by at least 2; Gumbel's is at most half of what is left, with a bias "
    "of at least a tenth of the gradient. At the end softmax has the smallest loss of all that are tried, entmax and "
    "sparsemax are within 0.5 nats of it, and REINFORCE is worst without its baseline.",
    checks=(
        Check("baseline", "a baseline divides the variance of REINFORCE by", least=1.5),
        Check("unbiased", "and it stays unbiased: its bias over the gradient", most=0.1),
        Check("gumbel", "the variance of Gumbel's gradient over that", most=1.0),
        Check("gumbel bias", "its bias over the gradient", least=0.1),
        Check("soft first", "hard attention with a baseline ends above softmax, by nats", least=0.05),
        Check("bare last", "and without a baseline above that", least=0.05),
        Check("sparse", "entmax and sparsemax end above softmax by at most", most=0.5),
    ),
    panels={"learned": Panel("Loss while learning", "step", "nats")},
    measure=measure,
    minutes="a minute",
)
