"""A model writing in slots: one step is the same operations on the same tensors, so that a device can replay it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from saccade.decoding.beam import BeamOptions
from saccade.decoding.constraints import Constraints
from saccade.decoding.continuous.beam_state import BeamBoard
from saccade.decoding.continuous.greedy_state import Board, GreedyBoard, Size
from saccade.decoding.continuous.sources import on_device
from saccade.decoding.continuous.top_tokens import likeliest
from saccade.decoding.stepper import Slotted
from saccade.ops.cuda_graphs import recorded, warmed
from saccade.ops.kernels.launch import chained

MOST_ENTRIES = 8  # of a stage, whose graphs are kept


@final
class Stage:
    """Board and state of one size. On a CUDA device its step is captured once, before the first sentence enters."""

    def __init__(self, model: Slotted, options: BeamOptions, size: Size, device: torch.device) -> None:
        self.model, self.options, self.size, self.device = model, options, size, device
        kind = GreedyBoard if size.width == 1 else BeamBoard
        self.board: Board = kind(options, size, device)
        self.state: Any = model.slots(self.board.slots, size.source_steps)
        self._entries = _Entries(self._enter)
        self.step = _captured(self._step, device) if device.type == "cuda" else self._step

    def enter(self, slots: list[int], started: Any, constraints: Constraints, *, stays: bool = False) -> None:
        """Sentences that begin, in some slots; `stays`: other sources will be read into the same state."""
        columns = (constraints.limit_B.new_tensor(slots), constraints.limit_B, constraints.guarded_B)
        rows_EX = torch.cat([*(column_E[:, None] for column_E in columns), constraints.prefix_BT], 1)
        if more := len(started.source_length_B) - len(slots):  # the last one's again and again
            rows_EX = torch.cat([rows_EX, rows_EX[-1:].expand(more, -1)])
        rows_EX = on_device(rows_EX, self.device)
        if stays:
            self._entries.enter(rows_EX, started)
        else:
            self._enter(rows_EX, started)

    def _enter(self, rows_EX: Tensor, started: Any) -> None:
        """... of which each row has the slot, the limit, whether loops are cut, and the prefix."""
        index_E, limit_E, guarded_E = rows_EX[:, :3].unbind(1)
        self.state.enter(index_E, started)
        self.board.enter(index_E, Constraints(self.options, rows_EX[:, 3:], limit_E, guarded_E.bool()))

    def refill(self, other: Stage, slots: list[int]) -> None:
        """Some sentences of another stage, in the first slots."""
        index_E = on_device(torch.tensor(slots), self.device)
        self.board.refill(other.board, index_E)
        self.state.refill(other.state, index_E)

    def columns(self, slots: list[int], num_steps: int) -> dict[str, Tensor]:
        """What was written in these slots, on the way to the host."""
        columns = self.board.columns(num_steps)
        if slots != list(range(self.size.batch)):
            index_E = on_device(torch.tensor(slots), self.device)
            columns = {name: tensor[index_E] for name, tensor in columns.items()}
        return {name: to_host(tensor) for name, tensor in columns.items()}

    def _step(self) -> None:
        """One id more in every live sentence."""
        vectors, _ = self.model.advance(self.state, self.board.last_BN.view(-1, 1))
        found = likeliest(self.model.logits(vectors[:, -1]), self.board, self.options)
        parent_BN = self.board.take(found)
        if parent_BN is not None:
            self.state.reorder(parent_BN)


class _Entry(NamedTuple):
    """What a graph reads."""

    rows_EX: Tensor
    started: Any
    graph: torch.cuda.CUDAGraph


@final
class _Entries:
    """Sentences that enter from a state that stays where it is: what is launched for them is replayed."""

    def __init__(self, enter: Callable[[Tensor, Any], None]) -> None:
        self._enter = enter
        self._met: dict[tuple[int, torch.Size], _Entry | Any] = {}  # not an entry: met once, and not recorded

    def enter(self, rows_EX: Tensor, started: Any) -> None:
        """Sentences that begin."""
        key = id(started), rows_EX.shape
        entry = self._met.get(key)
        if entry is None:
            if len(self._met) >= MOST_ENTRIES:
                self._met.clear()
            self._met[key] = started  # held, so that nothing else is met in its place
            return self._enter(rows_EX, started)
        if not isinstance(entry, _Entry):
            kept_EX = rows_EX.clone()
            entry = self._met[key] = _Entry(kept_EX, started, recorded(lambda: self._enter(kept_EX, started))[0])
        entry.rows_EX.copy_(rows_EX)
        return entry.graph.replay()


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
