"""A call as one CUDA graph: what it launches is recorded once, and replayed as often as wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

WARM_UPS = 2
Result = TypeVar("Result")


def warmed(call: Callable[[], object], device: torch.device) -> None:
    """Call it where nothing is recorded: what libraries set up on first use must not be."""
    current, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            call()
    current.wait_stream(side)


def recorded(call: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The graph of a call, and where its results are written. Other threads may use the device meanwhile."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
        result = call()
    return graph, result
