"""Encodes sources on a CUDA device: for a shape that occurs again, the launches are replayed from a graph."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from saccade.data.text.tokenizer import PAD
from saccade.decoding.stepper import SlotStepper
from saccade.ops.cuda_graphs import record, warm_up

SHORTEST = 8  # steps
MAX_GRAPHS = 32  # that are kept


class _EncoderGraph(NamedTuple):
    """A captured encoder: the tensors that it reads, and the state that it writes."""

    source_ES: Tensor
    length_E: Tensor
    graph: torch.cuda.CUDAGraph
    started: Any


@final
class SourceEncoder:
    """Encodes ids with a model whose memory stays in place. Sizes are powers of two, so that few occur."""

    def __init__(self, model: SlotStepper, device: torch.device) -> None:
        self._model, self._device = model, device
        self._graphs: dict[torch.Size, _EncoderGraph | None] = {}  # None: seen once, not captured

    def accepts(self, source: Tensor) -> bool:
        """Return whether these are ids, [E, S]."""
        return source.dim() == 2 and not source.is_floating_point()

    def is_reused(self, started: Any) -> bool:
        """Return whether a graph writes into this state each time it is replayed."""
        return any(graph is not None and graph.started is started for graph in self._graphs.values())

    def start(self, source_ES: Tensor, length_E: Tensor) -> Any:
        """Return the state after these sources, padded to a power of two of rows with copies of the last source.

        It is valid until sources of the same shape are encoded.
        """
        source_ES, length_E = self._round_up(source_ES, length_E)
        shape = source_ES.shape
        if shape not in self._graphs:
            if len(self._graphs) >= MAX_GRAPHS:
                self._graphs.clear()
            self._graphs[shape] = None
            return self._model.start(to_device(source_ES, self._device), to_device(length_E, self._device))
        graph = self._graphs[shape]
        if graph is None:
            graph = self._graphs[shape] = self._record(source_ES, length_E)
        graph.source_ES.copy_(to_device(source_ES, self._device))
        graph.length_E.copy_(to_device(length_E, self._device))
        graph.graph.replay()
        return graph.started

    def _record(self, source_ES: Tensor, length_E: Tensor) -> _EncoderGraph:
        source_ES, length_E = source_ES.to(self._device), length_E.to(self._device)

        def read() -> Any:
            return self._model.start(source_ES, length_E)

        warm_up(read, self._device)
        return _EncoderGraph(source_ES, length_E, *record(read))

    def _round_up(self, source_ES: Tensor, length_E: Tensor) -> tuple[Tensor, Tensor]:
        """Pad the sources, and repeat the last one, up to powers of two."""
        count, steps = source_ES.shape
        wanted, more = max(SHORTEST, next_power_of_two(steps)), next_power_of_two(count) - count
        if self._model.max_places is not None:
            wanted = max(steps, min(wanted, self._model.max_places))
        rows = source_ES.new_full((count + more, wanted), PAD)
        rows[:count, :steps] = source_ES
        rows[count:] = rows[count - 1]
        return rows, torch.cat([length_E, length_E[-1:].expand(more)])


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Send a tensor from the host to the device, without waiting."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below a number."""
    return 1 << (number - 1).bit_length()
