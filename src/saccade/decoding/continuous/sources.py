"""Sources read on a CUDA device: a shape that is met again is read by replaying what was launched for it."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from saccade.data.text.tokenizer import PAD
from saccade.decoding.stepper import Slotted
from saccade.ops.cuda_graphs import recorded, warmed

SHORTEST = 8  # steps
MOST_SHAPES = 32  # whose graphs are kept


class _Reading(NamedTuple):
    """What a graph reads, and where its state is afterwards."""

    source_ES: Tensor
    length_E: Tensor
    graph: torch.cuda.CUDAGraph
    started: Any


@final
class SourceEncoder:
    """Reads ids with a model that stays where it is. Sizes are powers of two, so that few are met."""

    def __init__(self, model: Slotted, device: torch.device) -> None:
        self._model, self._device = model, device
        self._met: dict[torch.Size, _Reading | None] = {}  # None: once, and that was not recorded

    def reads(self, source: Tensor) -> bool:
        """Whether these are ids, [E, S]."""
        return source.dim() == 2 and not source.is_floating_point()

    def keeps(self, started: Any) -> bool:
        """Whether this state is one that a graph writes, again and again."""
        return any(reading is not None and reading.started is started for reading in self._met.values())

    def start(self, source_ES: Tensor, length_E: Tensor) -> Any:
        """The state after these sources, with a power of two of rows: the last source again and again.

        It is there until sources of the same shape are read.
        """
        source_ES, length_E = self._rounded(source_ES, length_E)
        shape = source_ES.shape
        if shape not in self._met:
            if len(self._met) >= MOST_SHAPES:
                self._met.clear()
            self._met[shape] = None
            return self._model.start(on_device(source_ES, self._device), on_device(length_E, self._device))
        reading = self._met[shape]
        if reading is None:
            reading = self._met[shape] = self._recorded(source_ES, length_E)
        reading.source_ES.copy_(on_device(source_ES, self._device))
        reading.length_E.copy_(on_device(length_E, self._device))
        reading.graph.replay()
        return reading.started

    def _recorded(self, source_ES: Tensor, length_E: Tensor) -> _Reading:
        source_ES, length_E = source_ES.to(self._device), length_E.to(self._device)

        def read() -> Any:
            return self._model.start(source_ES, length_E)

        warmed(read, self._device)
        return _Reading(source_ES, length_E, *recorded(read))

    def _rounded(self, source_ES: Tensor, length_E: Tensor) -> tuple[Tensor, Tensor]:
        """The same sources with more padding, and the last one again, up to powers of two."""
        count, steps = source_ES.shape
        wanted, more = max(SHORTEST, power(steps)), power(count) - count
        if self._model.max_places is not None:
            wanted = max(steps, min(wanted, self._model.max_places))
        rows = source_ES.new_full((count + more, wanted), PAD)
        rows[:count, :steps] = source_ES
        rows[count:] = rows[count - 1]
        return rows, torch.cat([length_E, length_E[-1:].expand(more)])


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host where it is wanted, without waiting."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()
