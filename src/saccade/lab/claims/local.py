"""Is it enough to look at a part of the source? Local attention beside global, by length."""

from __future__ import annotations

from saccade.lab.claims.bottleneck import (
    FULL_LONGEST,
    FULL_STEPS,
    LONGEST,
    STEPS,
    SYMBOLS,
    TASKS,
    Kind,
    share_right,
    train,
)
from saccade.lab.experiment import Check, Experiment, Measurements, Panel, Points
from saccade.models.seq2seq_attention import AttentionOptions

WIDTH, RADIUS, SCORE = 64, 3, "general"
SCOPES = {"global": "global", "local-m": "local_m", "local-p": "local_p"}


def measure(seed: int, is_full: bool) -> Measurements:
    """Train every scope on both tasks, and measure the share of right symbols by length."""
    longest, num_steps = (FULL_LONGEST, FULL_STEPS) if is_full else (LONGEST, STEPS)
    lengths = [longest * part // 5 for part in range(1, 6)]
    panels, longs = dict[str, dict[str, Points]](), dict[str, float]()
    for task in TASKS:
        panels[task] = {}
        for name, scope in SCOPES.items():
            kind = Kind("luong", WIDTH, AttentionOptions(SCORE, scope=scope, radius=RADIUS))
            network = train(task, kind, seed, longest=longest, num_steps=num_steps)
            panels[task][name] = points = [(length, share_right(network, task, length)) for length in lengths]
            longs[f"{task}, {name}"] = points[-1][1]
    numbers = {
        f"{task}, {name} over global": longs[f"{task}, {name}"] - longs[f"{task}, global"]
        for task in TASKS
        for name in ("local-m", "local-p")
    }
    return Measurements(panels, longs | numbers)


LOCAL = Experiment(
    name="local",
    question="Is it enough to look at a part of the source?",
    claim="A window around the place that is expected (local-m) or predicted (local-p) is as good as looking at the "
    "whole source, or better, and more so for long sources; local-m expects source and target in the same order.",
    source="Luong 2015, sections 3.2 and 5.2",
    setup=f"Luong's decoder with the score {SCORE}, width {WIDTH}, learns to copy and to reverse {SYMBOLS} random "
    f"symbols: lengths 1 to {LONGEST} (--full: {FULL_LONGEST}), {STEPS} steps (--full: {FULL_STEPS}). Windows have "
    f"{RADIUS} symbols to either side. Share of right symbols by length; a guess has {1 / SYMBOLS:.3f}.",
    prediction="In copying both windows are at least as good as global attention at the greatest length. In reversing, "
    "local-m has less than 0.6 there, and local-p is within 0.1 of global attention.",
    checks=(
        Check(
            "copy, local-m over global", "copy: local-m is ahead of global attention at the greatest length by", -0.02
        ),
        Check("copy, local-p over global", "copy: so is local-p", -0.02),
        Check("reverse, local-p over global", "reverse: local-p is ahead by", -0.02),
        Check("reverse, local-m over global", "reverse: local-m is far behind", most=-0.2),
    ),
    panels={
        "copy": Panel("Copy", "length of the source", "share of right symbols"),
        "reverse": Panel("Reverse", "length of the source", "share of right symbols"),
    },
    measure=measure,
    minutes="four minutes",
    seeds=3,
)
