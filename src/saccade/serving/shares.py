"""What clients share, and none of them may take for itself."""

from __future__ import annotations

from collections import Counter
from typing import final


@final
class FairShare:
    """An amount that clients share. None may hold more than is free: one alone gets half, the next half of the rest.

    Whatever is asked for first is given, so that something larger than the whole is not refused for ever.
    """

    def __init__(self, most: int) -> None:
        self.most, self.total = most, 0
        self.held = Counter[str]()

    def allows(self, client: str, size: int) -> bool:
        """Tell whether a client may take so much more."""
        return not self.total or self.held[client] + size <= self.most - self.total

    def take(self, client: str, size: int) -> None:
        self.total += size
        self.held[client] += size

    def give_back(self, client: str, size: int) -> None:
        self.total -= size
        self.held[client] -= size
        if not self.held[client]:
            del self.held[client]
