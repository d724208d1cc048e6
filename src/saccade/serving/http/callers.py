"""Callers: the client that the request at hand comes from, and how often it may ask."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import final

from saccade.serving.http.responses import Refusal

MINUTE = 60.0
MAX_CLIENTS = 100_000  # whose rates are remembered


@final
@dataclass
class Caller:
    """The client of a request, its address or, once that is known, its key; and what it asked for, for the log."""

    name: str
    key: int | None = None  # its place in the file of keys, from 1
    model: str | None = None
    num_characters: int = 0


_CALLER: ContextVar[Caller] = ContextVar("caller")


def begin_call(address: str) -> Caller:
    """Say from which address the request at hand comes."""
    caller = Caller(address)
    _CALLER.set(caller)
    return caller


def identify(key: int) -> None:
    """Say with which key the request at hand came."""
    if (caller := _CALLER.get(None)) is not None:
        caller.name, caller.key = f"key {key}", key


def note_work(model: str, num_characters: int) -> None:
    """Say what the request at hand asks a model for."""
    if (caller := _CALLER.get(None)) is not None:
        caller.model = model
        caller.num_characters += num_characters


def caller_name() -> str | None:
    """Return who sent the request at hand; None outside of requests that ask for work."""
    caller = _CALLER.get(None)
    return None if caller is None else caller.name


@final
class RateLimit:
    """At most so many requests a minute from each client: all at once, or one by one as the minute passes.

    For each client it keeps one number, when its minute would be used up evenly (the generic cell rate algorithm).
    """

    def __init__(self, requests: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.requests, self._clock = requests, clock
        self._used_until: OrderedDict[str, float] = OrderedDict()

    def charge(self, client: str) -> None:
        """Count a request; refuse it if the client has asked too often."""
        now = self._clock()
        used = max(now, self._used_until.pop(client, now)) + MINUTE / self.requests
        if (late := used - now - MINUTE) > 1e-6:
            self._used_until[client] = used - MINUTE / self.requests
            headers = {"Retry-After": str(math.ceil(late))}
            raise Refusal(429, f"Slowdown: {self.requests} per 1 minute", headers, reason="rate")
        self._used_until[client] = used
        if len(self._used_until) > MAX_CLIENTS:
            self._used_until.popitem(last=False)
