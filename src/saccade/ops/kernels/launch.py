"""Kernels that overlap: one that begins while the one before it still runs, and two that run side by side.

On Hopper and later a kernel may begin early (programmatic dependent launch): a layer's weights are then on their way
while its input is still being made. What it may do before its input is there, `follow` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch

from saccade.ops.kernels.availability import is_hopper
from saccade.ops.pass_context import CURRENT, Override


def start_early() -> Override:
    """Let kernels that are launched in this `with` block begin early: weights and the like were written long ago."""
    return Override(starts_early=True)


def launch_options(device: torch.device) -> dict[str, Any]:
    """Return the options of a kernel that calls `follow(EARLY)`."""
    return {"EARLY": True, "launch_pdl": True} if CURRENT.starts_early and is_hopper(device) else {"EARLY": False}


@contextmanager
def fork_stream(device: torch.device) -> Iterator[AbstractContextManager[object]]:
    """Yield a second `with` block: what it launches runs beside what else is launched here. Both end with this one.

    Nothing may be allocated in the second block: tensors belong to the stream that waits here.
    """
    if device.type != "cuda":  # nothing runs at the same time
        yield nullcontext()
        return
    current = torch.cuda.current_stream(device)
    side = _side(current)
    side.wait_stream(current)
    try:
        yield torch.cuda.stream(side)
    finally:
        current.wait_stream(side)


@cache
def _side(stream: torch.cuda.Stream) -> torch.cuda.Stream:
    """Return a stream's own side stream: a stream that is captured must not draw in the work of another.

    Ordinary streams are handed out again and again; among those of a higher priority no one else's is met.
    """
    return torch.cuda.Stream(stream.device, priority=-1)
