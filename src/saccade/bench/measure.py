"""Time and peak memory of a function, on a CPU or an accelerator."""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch


def medians_side_by_side(
    functions: Mapping[str, Callable[[], object]], device: torch.device, *, at_least: float = 0.4
) -> dict[str, float]:
    """Medians of several functions run in turns, so that a slow moment of the machine hits them all."""
    for function in functions.values():
        _timed(function, device)
    times: dict[str, list[float]] = {name: [] for name in functions}
    rounds = 0
    while rounds < 3 or (rounds < 200 and _short(times, rounds, at_least)):
        for name, function in functions.items():
            times[name].append(_timed(function, device))
        rounds += 1
    return {name: statistics.median(row) for name, row in times.items()}


def _short(times: Mapping[str, list[float]], rounds: int, at_least: float) -> bool:
    """Seven rounds of what takes up to a second, more of what takes no time at all."""
    quickest = min(sum(row) for row in times.values())
    return quickest < at_least or (rounds < 7 and quickest < rounds)


def peak_memory(function: Callable[[], object], device: torch.device) -> int | None:
    """Bytes held at the worst moment of the run beyond those held before it; None where the system can't tell."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if not Path("/proc/self/clear_refs").exists():
        return None
    _give_back_freed_memory()
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts again from here
    except OSError:
        return None
    before = _status("VmRSS")
    function()
    return max(0, _status("VmHWM") - before)


def _timed(function: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _give_back_freed_memory() -> None:
    library = ctypes.util.find_library("c")
    trim = getattr(ctypes.CDLL(library), "malloc_trim", None) if library else None
    if trim is not None:
        trim(0)
