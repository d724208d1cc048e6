"""Does the additive score beat the dot product in wide models? Learning by width, with scaling and without."""

from __future__ import annotations

import math

from saccade.lab.claims.scale import FULL_LEARNING_WIDTHS, FULL_STEPS, LEARNING_WIDTHS, SHOWN, STEPS, WORDS, learn
from saccade.lab.experiment import Check, Experiment, Measurements, Panel, Points

NAMES = {"additive": "additive", "dot": "q·k", "scaled_dot": "q·k / sqrt(d)"}
NARROW, WIDE = LEARNING_WIDTHS[0], LEARNING_WIDTHS[-1]


def measure(seed: int, is_full: bool) -> Measurements:
    """Measure the loss after learning, by width, of three scores."""
    widths, num_steps = (FULL_LEARNING_WIDTHS, FULL_STEPS) if is_full else (LEARNING_WIDTHS, STEPS)
    learned: dict[str, Points] = {
        title: [(width, learn(name, width, seed, num_steps)) for width in widths] for name, title in NAMES.items()
    }
    additive, plain, scaled = (dict(points) for points in learned.values())
    numbers = {
        "narrow": plain[NARROW] - additive[NARROW],
        "wide": plain[WIDE] - additive[WIDE],
        "gap": scaled[WIDE] - additive[WIDE],
    }
    return Measurements({"learned": learned}, numbers)


WIDTH = Experiment(
    name="width",
    question="Does the additive score beat the dot product in wide models?",
    claim="In narrow models the two are alike; in wide ones the additive score is better than the unscaled dot "
    "product, and scaling closes the gap.",
    source="Britz 2017, section 3.5; Vaswani 2017, section 3.2.1",
    setup=f"The task of `saccade lab scale`: {SHOWN} of {WORDS} words are shown, and the place of the one that is "
    f"asked for is to be found, by one attention. {STEPS} steps of Adam at one rate (--full: {FULL_STEPS}); a blind "
    f"guess has {math.log(SHOWN):.2f} nats.",
    prediction=f"At width {NARROW} additive score and dot product end within 0.5 nats of each other; at width {WIDE} "
    "the dot product ends at least one nat above the additive score, and the scaled one at most 0.1 above.",
    checks=(
        Check("narrow", f"at width {NARROW} the dot product ends near the additive score: nats above", -0.5, 0.5),
        Check("wide", f"at width {WIDE} it ends far above", least=1.0),
        Check("gap", "there the scaled one does not", most=0.1),
    ),
    panels={"learned": Panel("Loss after learning", "width d", "nats", log_across=True, log_up=True)},
    measure=measure,
    minutes="a minute",
)
