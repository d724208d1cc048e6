"""Measures the memory that a function takes, on a CPU or an accelerator."""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
from collections.abc import Callable
from pathlib import Path

import torch


def peak_memory(function: Callable[[], object], device: torch.device) -> int | None:
    """Return the most bytes held during a call beyond those held before it, or None if the system doesn't say."""
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
