"""Fair shares of what clients have together, and none of them may take for itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import final

FEW = 1000  # clients


@final
class FairShare:
    """An amount that clients share. None may hold more than is free: one alone gets half, the next half of the rest.

    Whatever is asked for first is given, so that something larger than the whole is not refused for ever; of it no more
    than half counts, so that there is room for others beside it.
    """

    def __init__(self, most: int) -> None:
        self.most, self.total = most, 0
        self.held = Counter[str]()
        self._counted = 0

    def allows(self, client: str, size: int) -> bool:
        """Tell whether a client may take so much more."""
        return not self.total or self.held[client] + size <= self.most - self._counted

    def take(self, client: str, size: int) -> None:
        self._counted -= self._count(client)
        self.total += size
        self.held[client] += size
        self._counted += self._count(client)

    def give_back(self, client: str, size: int) -> None:
        self.take(client, -size)
        if not self.held[client]:
            del self.held[client]

    def _count(self, client: str) -> int:
        return min(self.held[client], -(-self.most // 2))


@final
class Allowance:
    """The amount that each client may have at once of something that comes back with time (a leaky bucket)."""

    def __init__(self, most: float, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.share, self._clock = most, share, clock
        self._full_at: dict[str, float] = {}  # when a client will have all of it again
        self._most_known = FEW

    def take(self, client: str, size: float) -> bool:
        """Take so much, if the client has it."""
        full_at = self._full_after(client, size)
        if full_at - self._clock() > self.most / self.share:
            return False
        self._set(client, full_at)
        return True

    def spend(self, client: str, size: float) -> None:
        """Take so much, also what the client will only have later."""
        self._set(client, self._full_after(client, size))

    def seconds_until(self, client: str) -> float:
        """Return how long it takes until a client has something again."""
        return max(0.0, self._full_at.get(client, 0.0) - self._clock() - self.most / self.share)

    def _full_after(self, client: str, size: float) -> float:
        now = self._clock()
        return max(now, self._full_at.get(client, now)) + size / self.share

    def _set(self, client: str, full_at: float) -> None:
        self._full_at[client] = full_at
        if len(self._full_at) > self._most_known:  # forget those that have all of it
            now = self._clock()
            self._full_at = {known: until for known, until in self._full_at.items() if until > now}
            self._most_known = max(FEW, 2 * len(self._full_at))
