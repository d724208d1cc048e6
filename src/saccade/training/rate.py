"""The number of items that a run computes in a second, and how often it is shown."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

WINDOW = 10.0  # seconds
TELL_EVERY = 10.0  # seconds between lines where there is no terminal


@final
class Rate:
    """Items over the last seconds of training; the time of validations and checkpoints doesn't count.

    An accelerator's steps are read in bursts, so the rates of single steps say nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock, self.paused = clock, 0.0
        self.seen = deque([(clock(), 0)])

    def add(self, num_items: int) -> float:
        """Count a step's items, and return the items a second."""
        now = self.clock() - self.paused
        self.seen.append((now, num_items))
        while len(self.seen) > 2 and now - self.seen[1][0] >= WINDOW:
            self.seen.popleft()
        (start, before), total = self.seen[0], sum(items for _, items in self.seen)
        return (total - before) / max(now - start, 1e-9)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave out the time of this block."""
        since = self.clock()
        try:
            yield
        finally:
            self.paused += self.clock() - since


@final
class Pace:
    """Tells when another line is due where no bar can be drawn: in a file, in a pipe."""

    def __init__(self) -> None:
        self.told = time.monotonic()

    def is_due(self) -> bool:
        """Return whether the last line was long ago; if so, the next one is counted from now."""
        now = time.monotonic()
        if is_due := now - self.told >= TELL_EVERY:
            self.told = now
        return is_due
