"""What makes a training on a CPU repeat bit by bit: a fixed number of threads, and sums in one order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import deterministic as _module

deterministic: Any = _module  # its settings are properties that mypy doesn't see


@contextmanager
def repeat_exactly(device: torch.device) -> Iterator[None]:
    """On a CPU, let no sum depend on which thread comes first.

    torch's `index_put_(accumulate=True)`, the gradient of every `x[index]`, adds large tensors in the order in which
    threads arrive. Deterministic algorithms add in one order. An accelerator is left as it is.
    """
    before = torch.get_deterministic_debug_mode(), deterministic.fill_uninitialized_memory
    try:
        if device.type == "cpu":
            torch.use_deterministic_algorithms(True, warn_only=True)
            deterministic.fill_uninitialized_memory = False  # it would only cost time: nobody reads such memory
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        deterministic.fill_uninitialized_memory = before[1]


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Compute with this number of threads. Once it is set, MKL doesn't choose fewer by itself."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
