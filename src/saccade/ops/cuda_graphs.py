"""CUDA graphs: what a call launches is recorded once, and replayed as often as wanted."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

WARM_UPS = 2
Result = TypeVar("Result")


def warm_up(call: Callable[[], object], device: torch.device) -> None:
    """Call it a few times on a side stream, so that a graph does not record what libraries set up on first use."""
    current, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            call()
    current.wait_stream(side)


def record(call: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Record a call; return the graph and the results that it writes. Other threads may use the device meanwhile."""
    graph = torch.cuda.CUDAGraph()
    with _collect_no_garbage(), torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
        result = call()
    return graph, result


@contextmanager
def _collect_no_garbage() -> Iterator[None]:
    """Let no other graph be freed meanwhile: that would end the recording."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
