"""Ctrl-C and SIGTERM: a wish to stop, granted between two steps, so that what is saved is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import final


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop, and everything is saved."""


@final
class Wish:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.is_stop = False
        self.may_raise = False  # nothing is half done: stop at once

    def stop(self, number: int, frame: FrameType | None) -> None:
        """The first time a wish; the second time at once, and nothing is saved that may be half done."""
        del frame
        again, self.is_stop = self.is_stop, True
        if self.may_raise:
            raise KeyboardInterrupt
        if again:
            raise SystemExit(128 + number)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """In this block nothing changes that would be saved."""
        self.may_raise = True
        try:
            yield
        finally:
            self.may_raise = False


@contextmanager
def wishes() -> Iterator[Wish]:
    """Signals become wishes in this block; outside the main thread they stay what they are."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    earlier = {number: signal.signal(number, wish.stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
