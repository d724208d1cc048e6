"""Ctrl-C, SIGTERM and a terminal that closes stop training after the current step: all that is saved is complete."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import final


class TrainingInterrupted(KeyboardInterrupt):
    """Training was asked to stop, and everything is saved."""


@final
class StopRequest:
    """Records whether a signal asked training to stop."""

    def __init__(self) -> None:
        self.is_requested = False
        self.may_raise = False  # nothing is half done: stop at once

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first one requests a stop, the second one ends the process at once without saving."""
        del frame
        again, self.is_requested = self.is_requested, True
        if self.may_raise:
            raise KeyboardInterrupt
        if again:
            raise SystemExit(128 + number)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal raise at once in this block, in which nothing changes that would be saved."""
        self.may_raise = True
        try:
            yield
        finally:
            self.may_raise = False


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn signals into stop requests in this block; outside the main thread they keep their effect."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        numbers.append(signal.SIGHUP)
    earlier = {number: signal.signal(number, request.stop) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
