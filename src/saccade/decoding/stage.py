"""A model writing in slots: one step is the same operations on the same tensors, so that a device can replay it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from saccade.attention.kernels.chained import chained
from saccade.decoding.beam import BeamOptions
from saccade.decoding.beam_board import BeamBoard
from saccade.decoding.board import Board, GreedyBoard, Size
from saccade.decoding.constraints import Constraints
from saccade.decoding.likeliest import likeliest
from saccade.decoding.reader import on_device
from saccade.decoding.stepper import Slotted
from saccade.layers.graphs import recorded, warmed


@final
class Stage:
    """Board and state of one size. On a CUDA device its step is captured once, before the first sentence enters."""

    def __init__(self, model: Slotted, options: BeamOptions, size: Size, device: torch.device) -> None:
        self.model, self.options, self.size, self.device = model, options, size, device
        kind = GreedyBoard if size.width == 1 else BeamBoard
        self.board: Board = kind(options, size, device)
        self.state: Any = model.slots(self.board.slots, size.source_steps)
        self.step = _captured(self._step, device) if device.type == "cuda" else self._step

    def enter(self, slots: list[int], started: Any, constraints: Constraints) -> None:
        """Sentences that begin, in some slots."""
        rows = [*slots, *slots[-1:] * (len(started.source_length_B) - len(slots))]  # the last one's again and again
        index_E = on_device(torch.tensor(rows), self.device)
        self.state.enter(index_E, started)
        index_E = index_E[: len(slots)]
        tensors = (constraints.prefix_BT, constraints.limit_B, constraints.guarded_B)
        self.board.enter(index_E, Constraints(self.options, *(on_device(one, self.device) for one in tensors)))

    def refill(self, other: Stage, slots: list[int]) -> None:
        """Some sentences of another stage, in the first slots."""
        index_E = on_device(torch.tensor(slots), self.device)
        self.board.refill(other.board, index_E)
        self.state.refill(other.state, index_E)

    def columns(self, slots: list[int], num_steps: int) -> dict[str, Tensor]:
        """What was written in these slots, on the way to the host."""
        index_E = on_device(torch.tensor(slots), self.device)
        return {name: to_host(tensor[index_E]) for name, tensor in self.board.columns(num_steps).items()}

    def _step(self) -> None:
        """One id more in every live sentence."""
        vectors, _ = self.model.advance(self.state, self.board.last_BN.view(-1, 1))
        found = likeliest(self.model.logits(vectors[:, -1]), self.board, self.options)
        parent_BN = self.board.take(found)
        if parent_BN is not None:
            self.state.reorder(parent_BN)


def to_host(tensor: Tensor) -> Tensor:
    """A copy on the host; of a CUDA tensor it is there when the stream is."""
    if tensor.device.type != "cuda":
        return tensor.clone()
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


def _captured(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The step as one CUDA graph."""
    with chained():
        warmed(step, device)
        return recorded(step)[0].replay
