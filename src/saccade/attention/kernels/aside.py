"""Two kernels at the same time on one device: what the one leaves idle when it begins and ends, the other uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch


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
