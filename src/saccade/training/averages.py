"""Averages of weights: a moving one in training (EMA), and the mean of the last validated ones (Vaswani 2017, 6.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from saccade.training.checkpoints import read_weights
from saccade.training.distributed.shards import local_shard, shard_like


@final
class MovingAverage:
    """m <- d m + (1 - d) w after each step; early on d is smaller, so that the first weights are soon forgotten."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights: dict[str, Tensor] = {}
        if decay:
            self.weights = {name: weight.detach().clone() for name, weight in _list_learned(model)}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        if self.weights:
            decay = min(self.decay, (1 + step) / (10 + step))
            current = [local_shard(weight.detach()) for _, weight in _list_learned(model)]
            torch._foreach_lerp_([local_shard(weight) for weight in self.weights.values()], current, 1 - decay)

    @contextmanager
    def swap_into(self, model: nn.Module) -> Iterator[None]:
        """Give the model the averaged weights in this block; its own come back afterwards."""
        own = {name: weight.detach().clone() for name, weight in model.named_parameters() if name in self.weights}
        copy_weights(model, self.weights)
        try:
            yield
        finally:
            copy_weights(model, own)


def _list_learned(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]


@torch.no_grad()
def copy_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a model's parameters; its buffers stay as they are."""
    parameters = dict(model.named_parameters())
    for name in parameters.keys() & weights.keys():
        parameters[name].copy_(shard_like(weights[name], parameters[name]))


def average_files(paths: list[Path]) -> dict[str, Tensor]:
    """Return the mean of several files of weights."""
    files = [read_weights(path) for path in paths]
    return {name: torch.stack([file[name] for file in files]).mean(0) for name in files[0]}
