"""Kernels that overlap: one that begins while the one before it still runs, and two that run side by side.

On Hopper and later a kernel may begin early (programmatic dependent launch): a layer's weights are then on their way
while its input is still being made. What it may do before its input is there, `follow` says.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch

from saccade.ops.kernels.availability import is_hopper


class _Chain(threading.local):
    is_on = False


_CHAIN = _Chain()


@contextmanager
def chained() -> Iterator[None]:
    """Kernels launched here may begin early: weights and the like were written long ago."""
    before, _CHAIN.is_on = _CHAIN.is_on, True
    try:
        yield
    finally:
        _CHAIN.is_on = before


def launch(device: torch.device) -> dict[str, Any]:
    """Options of a kernel that calls `follow(EARLY)`."""
    return {"EARLY": True, "launch_pdl": True} if _CHAIN.is_on and is_hopper(device) else {"EARLY": False}


@contextmanager
def forked(device: torch.device) -> Iterator[AbstractContextManager[object]]:
    """What is launched `with` what this gives runs beside what else is launched in here; all of it ends with this.

    Nothing may be allocated there: tensors belong to the stream that waits here, for which all work on them is done.
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
    """Each stream has its own: one that is captured must not draw in the work of another.

    Ordinary streams are handed out again and again; among those of a higher priority no one else's is met.
    """
    return torch.cuda.Stream(stream.device, priority=-1)
