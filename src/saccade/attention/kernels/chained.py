"""Kernels that begin while the one before them still runs, on Hopper and later: programmatic dependent launch.

A layer's weights are then on their way while its input is still being made. What a kernel may do before its input is
there, `follow` says.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from saccade.attention.kernels.triton_here import is_hopper


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
