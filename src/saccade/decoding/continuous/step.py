"""The decoding step of a batch of slots: the same operations on the same tensors each time, so it can be captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from saccade.decoding.beam import BeamOptions
from saccade.decoding.constraints import Constraints
from saccade.decoding.continuous.beam_state import BeamState
from saccade.decoding.continuous.greedy_state import DecodingState, GreedyState, StateSize
from saccade.decoding.continuous.sources import to_device
from saccade.decoding.continuous.top_tokens import top_tokens
from saccade.decoding.stepper import SlotStepper
from saccade.ops.cuda_graphs import record, warm_up
from saccade.ops.kernels.launch import start_early

MAX_GRAPHS = 8  # of sentences that enter


@final
class SlotBatch:
    """Slots of one size: the decoding state, the model's state, and the step that advances both.

    On a CUDA device the step is captured once, before the first sentence enters.
    """

    def __init__(self, model: SlotStepper, options: BeamOptions, size: StateSize, device: torch.device) -> None:
        self.model, self.options, self.size, self.device = model, options, size, device
        kind = GreedyState if size.width == 1 else BeamState
        self.state: DecodingState = kind(options, size, device)
        self.model_state: Any = model.slots(self.state.slots, size.source_steps)
        self._entry_graphs = _EntryGraphs(self._enter)
        self.step = _capture(self._step, device) if device.type == "cuda" else self._step

    def enter(self, slots: list[int], started: Any, constraints: Constraints, *, is_reused: bool = False) -> None:
        """Begin sentences in some slots; `is_reused` says that other sources will be encoded into this same state."""
        columns = (constraints.limit_B.new_tensor(slots), constraints.limit_B, constraints.guarded_B)
        rows_EX = torch.cat([*(column_E[:, None] for column_E in columns), constraints.prefix_BT], 1)
        if more := len(started.source_length_B) - len(slots):  # copies of the last one
            rows_EX = torch.cat([rows_EX, rows_EX[-1:].expand(more, -1)])
        rows_EX = to_device(rows_EX, self.device)
        if is_reused:
            self._entry_graphs.enter(rows_EX, started)
        else:
            self._enter(rows_EX, started)

    def _enter(self, rows_EX: Tensor, started: Any) -> None:
        """Begin sentences; a row has the slot, the limit, whether loops are cut, and the prefix."""
        index_E, limit_E, guarded_E = rows_EX[:, :3].unbind(1)
        self.model_state.enter(index_E, started)
        self.state.enter(index_E, Constraints(self.options, rows_EX[:, 3:], limit_E, guarded_E.bool()))

    def refill(self, other: SlotBatch, slots: list[int]) -> None:
        """Take some sentences of another batch into the first slots."""
        index_E = to_device(torch.tensor(slots), self.device)
        self.state.refill(other.state, index_E)
        self.model_state.refill(other.model_state, index_E)

    def columns(self, slots: list[int], num_steps: int) -> dict[str, Tensor]:
        """Copy the contents of these slots to the host, without waiting."""
        columns = self.state.columns(num_steps)
        if slots != list(range(self.size.batch)):
            index_E = to_device(torch.tensor(slots), self.device)
            columns = {name: tensor[index_E] for name, tensor in columns.items()}
        return {name: to_host(tensor) for name, tensor in columns.items()}

    def _step(self) -> None:
        """Add one id to every live sentence."""
        vectors, _ = self.model.advance(self.model_state, self.state.last_BN.view(-1, 1))
        found = top_tokens(self.model.logits(vectors[:, -1]), self.state, self.options)
        parent_BN = self.state.update(found)
        if parent_BN is not None:
            self.model_state.reorder(parent_BN)


class _EntryGraph(NamedTuple):
    """A captured entry and the tensors that it reads."""

    rows_EX: Tensor
    started: Any
    graph: torch.cuda.CUDAGraph


@final
class _EntryGraphs:
    """Captures the entry of sentences whose encoder state stays in place, and replays it."""

    def __init__(self, enter: Callable[[Tensor, Any], None]) -> None:
        self._enter = enter
        self._graphs: dict[tuple[int, torch.Size], _EntryGraph | Any] = {}  # no graph: seen once, not captured

    def enter(self, rows_EX: Tensor, started: Any) -> None:
        key = id(started), rows_EX.shape
        entry = self._graphs.get(key)
        if entry is None:
            if len(self._graphs) >= MAX_GRAPHS:
                self._graphs.clear()
            self._graphs[key] = started  # held, so that nothing else gets its id
            return self._enter(rows_EX, started)
        if not isinstance(entry, _EntryGraph):
            kept_EX = rows_EX.clone()
            graph, _ = record(lambda: self._enter(kept_EX, started))
            entry = self._graphs[key] = _EntryGraph(kept_EX, started, graph)
        entry.rows_EX.copy_(rows_EX)
        return entry.graph.replay()


def to_host(tensor: Tensor) -> Tensor:
    """Copy to the host; the copy of a CUDA tensor is complete when the stream has come to it."""
    if tensor.device.type != "cuda":
        return tensor.clone()
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


def _capture(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Capture the step as one CUDA graph."""
    with start_early():
        warm_up(step, device)
        return record(step)[0].replay
