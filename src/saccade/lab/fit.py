"""Made symbols for experiments of the lab, and a short training on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

FIRST = 3  # id of the first symbol, behind padding, <s> and </s>


def draw_symbols(num_rows: int, length: int, *, num_symbols: int) -> Tensor:
    """Draw ids of symbols, each as likely as the others, [B, S]."""
    return torch.randint(FIRST, FIRST + num_symbols, (num_rows, length))


def fit(
    parameters: Iterable[nn.Parameter],
    draw_loss: Callable[[], Tensor],
    *,
    num_steps: int,
    rate: float,
    most_norm: float = math.inf,
    falls: bool = False,
    warmup_steps: int = 0,
) -> list[float]:
    """Take steps of Adam on losses of new batches, and return these losses.

    Longer gradients are cut to `most_norm`; a rate that `falls` goes down to 0 along a line. In `warmup_steps` it
    first rises along one.
    """
    weights = list(parameters)
    optimizer, losses = torch.optim.Adam(weights, lr=rate), list[float]()
    for step in range(num_steps):
        fallen = 1 - step / num_steps if falls else 1.0
        optimizer.param_groups[0]["lr"] = rate * fallen * min(1.0, (step + 1) / max(1, warmup_steps))
        loss = draw_loss()
        optimizer.zero_grad()
        loss.backward()
        if math.isfinite(most_norm):
            nn.utils.clip_grad_norm_(weights, most_norm)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
