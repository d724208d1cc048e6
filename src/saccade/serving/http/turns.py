"""When requests begin: those of an address that sends many, one handful after another, so that others come between."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import final

AT_ONCE = 4  # requests of one address that begin in one round of the event loop
SHARE = 0.25  # of the event loop's time for an address with more than that, while others ask
SHARED_SECONDS = 2.0  # that others are remembered
LONGEST_REST = 0.02  # seconds, however busy others keep the loop

Begin = Callable[[], None]


@final
class Turns:
    """The lines of requests that have not begun, one for each address.

    Reading a request and refusing it takes the event loop some time, whoever is refused: a thousand that come at once
    would all be read before the next one. Who has no line begins at once. A line goes on by a few requests at a time;
    while other addresses ask as well, it rests in between, as long as it takes to leave them their part of the loop.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock  # of the time that the event loop has worked
        self._lines: dict[str, deque[Begin]] = {}
        self._last, self._shared_until = "", -math.inf

    @property
    def num_waiting(self) -> int:
        return sum(map(len, self._lines.values()))

    def take(self, address: str, begin: Begin) -> None:
        """Begin a request of this address now or when it is its turn."""
        now = time.monotonic()
        if address != self._last:
            self._shared_until, self._last = (now + SHARED_SECONDS if self._last else now), address
        if (line := self._lines.get(address)) is None:
            line = self._lines[address] = deque()
            asyncio.get_running_loop().call_soon(self._go_on, address, AT_ONCE - 1, self._clock())
            begin()
        else:
            line.append(begin)

    def _go_on(self, address: str, room: int, since: float) -> None:
        """Begin the next requests of a line; forget one that has ended."""
        line = self._lines[address]
        if not line:
            del self._lines[address]
            return
        worked = (now := self._clock()) - since
        for _ in range(min(room, len(line))):
            line.popleft()()
        loop, again = asyncio.get_running_loop(), partial(self._go_on, address, AT_ONCE, now)
        if line and time.monotonic() < self._shared_until:
            loop.call_later(min(LONGEST_REST, worked * (1 / SHARE - 1)), again)
        else:
            loop.call_soon(again)
