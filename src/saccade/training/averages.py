"""Averages of weights: a moving one while training (EMA), and one of the last few validated (Vaswani 2017, 6.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from saccade.training.distributed.shards import cut_like, part


@final
class MovingAverage:
    """m <- d m + (1 - d) w after each step; early on d is smaller, so that the first weights are soon forgotten."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights: dict[str, Tensor] = {}
        if decay:
            self.weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """One step more."""
        if self.weights:
            decay = min(self.decay, (1 + step) / (10 + step))
            current = [part(weight.detach()) for _, weight in model.named_parameters()]
            torch._foreach_lerp_([part(weight) for weight in self.weights.values()], current, 1 - decay)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights; its own come back afterwards."""
        own = {name: weight.detach().clone() for name, weight in model.named_parameters() if name in self.weights}
        put(model, self.weights)
        try:
            yield
        finally:
            put(model, own)


@torch.no_grad()
def put(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a model; what isn't learned by gradients (buffers) stays as it is."""
    parameters = dict(model.named_parameters())
    for name in parameters.keys() & weights.keys():
        parameters[name].copy_(cut_like(weights[name], parameters[name]))


def mean_of(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of several files of weights."""
    files = [load_file(path) for path in paths]
    return {name: torch.stack([file[name] for file in files]).mean(0) for name in files[0]}
