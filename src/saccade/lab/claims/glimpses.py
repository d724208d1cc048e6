"""Does the cost of looking grow with the picture? Operations and time by pixels, and errors by number of glimpses."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from saccade.data.pictures.canvases import Canvases
from saccade.datasets.made.digits import paint_digits
from saccade.lab.claims.cost import exponent
from saccade.lab.experiment import Check, Experiment, Lines, Measurements, Panel, Points
from saccade.lab.fit import fit
from saccade.models.glimpse_network import GlimpseNetwork
from saccade.tasks.glimpse.loss import HybridLoss, PictureBatch

SIDES, FULL_SIDES = (40, 80, 160, 320), (40, 80, 160, 320, 640, 1280)
PATCH, SCALES, GLIMPSES, WIDTH, CHANNELS = 8, 3, 4, 128, 16
TIMED, REPEATS = 8, 5  # pictures at a time, and how often they are looked at: the fastest counts
CANVAS, NUMBERS = 40, (1, 2, 3, 4)
TRAIN, TESTED, BATCH, COPIES, RATE, CLIP = 3000, 1000, 64, 2, 0.003, 5.0
STEPS, FULL_STEPS, WARMUP_STEPS = 1200, 12_000, 50
FIRST_STD, LAST_STD, SAMPLES = 0.3, 0.1, 4


def measure(seed: int, is_full: bool) -> Measurements:
    """Count and time looking at pictures of several sizes; train with several numbers of glimpses."""
    torch.manual_seed(seed)
    sides = FULL_SIDES if is_full else SIDES
    readers: dict[str, nn.Module] = {"glimpses": SmallGlimpser(), "convolutions": make_convolutions()}
    operations, seconds = (
        {name: [(side**2, float(ask(reader, side))) for side in sides] for name, reader in readers.items()}
        for ask in (count_operations, time_looking)
    )
    errors = learn_all(seed, FULL_STEPS if is_full else STEPS)
    numbers = {
        "glimpses, operations": exponent(operations["glimpses"]),
        "convolutions, operations": exponent(operations["convolutions"]),
        "glimpses, seconds": exponent(seconds["glimpses"]),
        "convolutions, seconds": exponent(seconds["convolutions"]),
        "one": errors[0][1],
        "four over one": errors[-1][1] / errors[0][1],
        "two over one": errors[1][1] / errors[0][1],
    }
    panels: dict[str, Lines] = {"operations": operations, "seconds": seconds, "errors": {f"canvas of {CANVAS}": errors}}
    return Measurements(panels, numbers)


class SmallGlimpser(nn.Module):
    """A glimpse network that looks at a picture a few times, where it wants to."""

    def __init__(self) -> None:
        super().__init__()
        self.network = make_network(GLIMPSES)

    def forward(self, image_BCYX: Tensor) -> Tensor:
        return self.network(image_BCYX, torch.zeros(GLIMPSES, 1, 1, 2)).logits_TNV[-1]


def make_network(num_glimpses: int) -> GlimpseNetwork:
    """Make the network of the recipe `digits`, for some number of glimpses."""
    return GlimpseNetwork(
        10,
        size=PATCH,
        num_scales=SCALES,
        num_glimpses=num_glimpses,
        glimpse_width=WIDTH,
        cell="gru",
        width=WIDTH,
        policy_reaches_core=True,
    )


def make_convolutions() -> nn.Sequential:
    """Make two layers of convolutions over the whole picture, and a mean over its places."""
    return nn.Sequential(
        nn.Conv2d(1, CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(CHANNELS, 10),
    )


@torch.no_grad()
def count_operations(reader: nn.Module, side: int) -> float:
    """Count multiplications and additions of matrix products and convolutions, and the points a sensor samples."""
    sampled = list[int]()

    def count(sensor: nn.Module, given: tuple[Tensor, ...], seen_NCYX: Tensor) -> None:
        del sensor, given
        sampled.append(seen_NCYX.numel())

    handles = [
        part.sensor.register_forward_hook(count) for part in reader.modules() if isinstance(part, GlimpseNetwork)
    ]
    with FlopCounterMode(display=False) as counter:
        reader(torch.zeros(1, 1, side, side))
    for handle in handles:
        handle.remove()
    return float(counter.get_total_flops() + sum(sampled))


@torch.no_grad()
def time_looking(reader: nn.Module, side: int) -> float:
    """Measure the processor's seconds for some pictures; the fastest of several times counts."""
    image_BCYX = torch.rand(TIMED, 1, side, side)
    return min(_time(lambda: reader(image_BCYX)) for _ in range(REPEATS))


def _time(do: Callable[[], object]) -> float:
    began = time.process_time()
    do()
    return time.process_time() - began


def learn_all(seed: int, num_steps: int) -> Points:
    """Train with each number of glimpses on painted digits; return the share of errors by it."""
    random = np.random.default_rng(seed)
    pixels, labels = paint_digits(TRAIN + TESTED, random)
    pixel_NCYX, label_N = torch.from_numpy(pixels)[:, None], torch.from_numpy(labels).long()
    return [(number, learn(number, pixel_NCYX, label_N, seed, num_steps)) for number in NUMBERS]


def learn(num_glimpses: int, pixel_NCYX: Tensor, label_N: Tensor, seed: int, num_steps: int) -> float:
    """Train as the recipe `digits` does, and return the share of errors on pictures that were held out."""
    torch.manual_seed(seed)
    network, canvases = make_network(num_glimpses), Canvases(CANVAS)
    loss = HybridLoss(
        network, pixel_NCYX[:TRAIN], label_N[:TRAIN], canvases, COPIES, reward="probability", early_weight=0.3
    )
    taken = 0

    def draw_loss() -> Tensor:
        nonlocal taken
        share, taken = taken / num_steps, taken + 1
        std = torch.tensor(FIRST_STD ** (1 - share) * LAST_STD**share)
        return loss(PictureBatch(torch.randint(TRAIN, (BATCH,)), std))[0] / BATCH

    fit(
        network.parameters(),
        draw_loss,
        num_steps=num_steps,
        rate=RATE,
        most_norm=CLIP,
        falls=True,
        warmup_steps=WARMUP_STEPS,
    )
    return share_wrong(network.eval(), canvases.draw_fixed(pixel_NCYX[TRAIN:], seed), label_N[TRAIN:])


@torch.no_grad()
def share_wrong(network: GlimpseNetwork, image_NCYX: Tensor, label_N: Tensor) -> float:
    """Return the share of wrong answers; an answer is the mean over several paths."""
    noise_TBM2 = torch.randn(network.num_glimpses, 1, SAMPLES, 2) * LAST_STD
    noise_TBM2[0] = 0
    path = network(image_NCYX.float() / 255, noise_TBM2)
    answer_N = path.logits_TNV[-1].softmax(-1).unflatten(0, (-1, SAMPLES)).mean(1).argmax(-1)
    return float((answer_N != label_N).float().mean())


GLIMPSES_CLAIM = Experiment(
    name="glimpses",
    question="Does the cost of looking grow with the picture?",
    claim="A model that looks at a picture by glimpses costs the same whatever the number of pixels; convolutions over "
    "the whole picture cost as much as it has pixels. More glimpses make fewer errors.",
    source="Mnih 2014, sections 1, 3 and 4",
    setup=f"Operations and processor time for one pass through {GLIMPSES} glimpses ({SCALES} scales of {PATCH} x "
    f"{PATCH}) and through two layers of convolutions, on square pictures of side {SIDES[0]} to {SIDES[-1]} (--full: "
    f"{FULL_SIDES[-1]}); exponents of the number of pixels. Then {TRAIN:,} painted digits, each somewhere on {CANVAS} "
    f"x {CANVAS} pixels, are learned with {NUMBERS[0]} to {NUMBERS[-1]} glimpses, {STEPS} steps (--full: "
    f"{FULL_STEPS}); {TESTED:,} others test it. The first glimpse is in the middle.",
    prediction="Operations of glimpses grow with exponent 0, of convolutions with exponent 1; time with less than 0.1 "
    "and at least 0.8. One glimpse makes at least 20% errors, two make at most half as many, four at most a fifth.",
    checks=(
        Check("glimpses, operations", "operations of glimpses grow with the pixels to the power of", -0.01, 0.01),
        Check("convolutions, operations", "those of convolutions", 0.95, 1.05),
        Check("glimpses, seconds", "the time of glimpses grows with the pixels to the power of", most=0.2),
        Check("convolutions, seconds", "that of convolutions", least=0.7),
        Check("one", "one glimpse, in the middle, makes a share of errors", least=0.15),
        Check("two over one", "two make this part of them", most=0.7),
        Check("four over one", "and four", most=0.35),
    ),
    panels={
        "operations": Panel("Operations of a pass", "pixels", "operations", log_across=True, log_up=True),
        "seconds": Panel("Processor time of a pass", "pixels", "seconds", log_across=True, log_up=True),
        "errors": Panel("Errors", "glimpses", "share of test digits"),
    },
    measure=measure,
    minutes="three minutes",
    seeds=3,
)
