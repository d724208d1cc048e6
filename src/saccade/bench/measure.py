"""Timing of several functions in turns, on a CPU or an accelerator."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

from saccade.ops.cuda_graphs import record, warm_up


def medians_side_by_side(
    functions: Mapping[str, Callable[[], object]],
    device: torch.device,
    *,
    at_least: float = 0.4,
    most: int = 200,
    are_warm: bool = False,
) -> dict[str, float]:
    """Time functions in at most `most` turns and return their medians; a slow moment of the machine affects all."""
    for function in () if are_warm else functions.values():
        _time(function, device)
    times: dict[str, list[float]] = {name: [] for name in functions}
    rounds = 0
    while rounds < min(3, most) or (rounds < most and _needs_more(times, rounds, at_least)):
        for name, function in functions.items():
            times[name].append(_time(function, device))
        rounds += 1
    return {name: statistics.median(row) for name, row in times.items()}


def queued_seconds(function: Callable[[], object], *, at_least: float = 0.02, rounds: int = 5) -> float:
    """Measure a call's time on a CUDA device: the median over series of calls that are queued without waiting."""
    times = max(1, int(at_least / _between_events(function, 3)))
    return statistics.median(_between_events(function, times) for _ in range(rounds))


def captured_seconds(function: Callable[[], object]) -> float:
    """Measure the same without the host's time, by replaying a captured graph."""
    warm_up(function, torch.device("cuda"))
    graph, _ = record(function)
    return queued_seconds(graph.replay)


def _between_events(function: Callable[[], object], times: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / times


def _needs_more(times: Mapping[str, list[float]], rounds: int, at_least: float) -> bool:
    """Return whether more rounds are needed: seven if a round takes up to a second, more if it is very short."""
    quickest = min(sum(row) for row in times.values())
    return quickest < at_least or (rounds < 7 and quickest < rounds)


def _time(function: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
