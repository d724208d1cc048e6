"""Settings that make a training on a CPU repeat bit by bit: a fixed number of threads, and sums in one order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import deterministic as _module

deterministic: Any = _module  # its settings are properties that mypy doesn't see


@contextmanager
def repeat_exactly(device: torch.device) -> Iterator[None]:
    """Let no sum on a CPU depend on which thread comes first.

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


def count_cores() -> int:
    """Return how many cores this process may use; where the system doesn't say it of a process, all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usual_threads() -> int:
    """Return how many threads compute where nobody says: torch's number, but of all cores one is left to others.

    Threads share every operation, and the slowest of them ends it: where something else runs on its core, two threads
    on two cores are slower than one. It doesn't depend on what runs now, since sums depend on the number of threads.
    """
    number = torch.get_num_threads()
    takes_all = number == count_cores() > 1 and "OMP_NUM_THREADS" not in os.environ
    return number - takes_all


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Compute with this number of threads. Once it is set, MKL doesn't choose fewer by itself."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
