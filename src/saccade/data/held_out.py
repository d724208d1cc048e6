"""Holds out a part of a set for validation, chosen by hashes.

It is the same part whatever the order, the seed and the machine, and equal keys stay together: nothing leaks.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from saccade.errors import UserError

HASHES = 1 << 64
T = TypeVar("T")


@final
@dataclass(frozen=True)
class Amount:
    """The size of a held-out part: about a share of the keys, or a count and what is equal to the last."""

    share: float | None = None
    count: int | None = None

    def __str__(self) -> str:
        return f"{self.share:g}" if self.count is None else f"{self.count:,}"


def hash_key(key: str) -> int:
    """Return a number below 2^64 that looks random."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")


def find_limit(amount: Amount, keys: Iterable[str]) -> int:
    """Return the hash below which keys are held out; only a count reads them."""
    if amount.share is not None:
        return int(amount.share * HASHES)
    assert amount.count is not None
    least = heapq.nsmallest(amount.count + 1, map(hash_key, keys))
    if len(least) <= amount.count:
        raise UserError(f"data.valid: {amount} given; data.train has {len(least):,}, and some must be left to train on")
    return least[-2] + 1


def hold_out(groups: Sequence[Sequence[T]], key: Callable[[T], str], amount: Amount) -> list[bool]:
    """Return for each group whether it is held out; an amount that leaves nothing on a side is refused."""
    keys = ["\n".join(map(key, group)) for group in groups]
    each = (one for one, group in zip(keys, groups, strict=True) for _ in group)
    limit = find_limit(amount, each)
    held = [hash_key(one) < limit for one in keys]
    if not any(held) or all(held):
        side = "to train on" if all(held) else "for validation"
        raise UserError(
            f"data.valid: {amount} given; of {len(held):,} it leaves none {side}; allowed: a count, or a file"
        )
    return held
