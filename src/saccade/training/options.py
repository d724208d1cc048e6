"""The options and protocols of the training loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, final

import torch
from torch import Tensor

from saccade.training.checkpoints import Progress

CPU = torch.device("cpu")


@final
@dataclass(frozen=True)
class TrainingOptions:
    """The settings of a training run."""

    max_steps: int
    learning_rate: float
    warmup_steps: int
    schedule: str = "cosine"
    optimizer: str = "adamw"
    accumulate: int = 1
    clip_norm: float = 1.0
    weight_decay: float = 0.0
    adam_betas: tuple[float, float] = (0.9, 0.98)
    ema: float = 0.0
    average_last: int = 0
    validate_every: int = 500
    save_every: int = 500
    patience: int | None = None
    seed: int = 1
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32  # of matrix products; weights stay float32
    output_dtype: torch.dtype = torch.float32  # of those of the output layer, where it is the narrower one
    capture: bool = False  # forward and backward as a CUDA graph; the loss must not wait for the device

    @property
    def precision(self) -> str:
        """The name of the precision in a config."""
        name = str(self.dtype).removeprefix("torch.")
        return name if self.output_dtype in (self.dtype, torch.float32) else f"{str(self.output_dtype)[6:]}_output"


class Batch(Protocol):
    """Tensors that are computed together."""

    @property
    def num_items(self) -> int:
        """Number of items that the loss is a mean over and the rate counts: tokens, sentences, pictures."""

    def to(self, device: torch.device) -> Self: ...


class Plan(Protocol):
    """Decides which rows go together in each epoch."""

    def epoch(self, number: int) -> Sequence[Any]:
        """Return the rows of an epoch's batches: a function of the seed and the number."""

    @property
    def load(self) -> Callable[[Any], Any]:
        """A function that turns rows into a Batch."""


Loss = Callable[[Any], tuple[Tensor, Tensor]]  # of a batch: the sum to differentiate, and the sum that is shown
Validate = Callable[
    [], dict[str, float]
]  # a dict with "score": higher is better; of equal ones a lower "valid_loss" is
Report = Callable[[Progress, dict[str, Any]], None]
