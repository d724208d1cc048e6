"""Learning rate schedules: a factor of the peak for each step, counted from 1."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]
HIGHEST_RATE = 0.003  # short warm-ups would ask for more


def inverse_square_root(warmup_steps: int, max_steps: int) -> Schedule:
    """Rise linearly to 1 at the end of the warm-up, then fall as sqrt(warmup / step) (Vaswani 2017, section 5.3)."""
    del max_steps
    return lambda step: min(step / max(1, warmup_steps), math.sqrt(max(1, warmup_steps) / step))


def cosine(warmup_steps: int, max_steps: int) -> Schedule:
    """Rise linearly to 1, then fall as half a cosine to 0 (Loshchilov & Hutter 2017, section 3)."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return step / warmup_steps
        share = (step - warmup_steps) / max(1, max_steps - warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, share)))

    return factor


def constant(warmup_steps: int, max_steps: int) -> Schedule:
    """Rise linearly to 1, then stay there."""
    del max_steps
    return lambda step: min(1.0, step / max(1, warmup_steps))


def transformer_rate(width: int, warmup_steps: int) -> float:
    """Return 1 / sqrt(width * warm-up), the peak of Vaswani (2017, section 5.3), with two figures; at most 0.003."""
    return float(f"{min(HIGHEST_RATE, (width * max(1, warmup_steps)) ** -0.5):.2g}")


SCHEDULES: dict[str, Callable[[int, int], Schedule]] = {
    "inverse_square_root": inverse_square_root,
    "cosine": cosine,
    "constant": constant,
}
