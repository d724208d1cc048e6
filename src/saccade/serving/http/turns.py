"""Turns of requests: those of an address that asks for much begin one after another, so that others come between."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, TypeVar, final
from weakref import WeakValueDictionary

from saccade.serving.shares import Allowance

AT_ONCE = 4  # requests of one address that begin in one round of the event loop
SHARE = 0.2  # of the time of the event loop, and of threads beside it, for one address while others ask
SECONDS_AT_ONCE = 0.02  # of it
SHARED_SECONDS = 2.0  # that others are remembered

Begin = Callable[[], None]
Result = TypeVar("Result")


@final
class Turns:
    """The lines of requests that have not begun, one for each address, and the time that reading them took.

    Reading a request, splitting its text and refusing it take the event loop some time, whoever is refused. While other
    addresses ask as well, one that has taken more than its share rests: it begins nothing, and no more of what it sends
    is read. Else its requests begin at once, and many that come together a few at a time. `is_shared_with` tells
    whether an address has others beside it that ask for something else than what stands in these lines.
    """

    def __init__(
        self, seconds_at_once: float = SECONDS_AT_ONCE, is_shared_with: Callable[[str], bool] = lambda address: False
    ) -> None:
        self._lines: dict[str, deque[Begin]] = {}
        self.num_waiting = 0
        self._is_shared_with = is_shared_with
        self._time = Allowance(seconds_at_once, SHARE)
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._last, self._shared_until = "", -math.inf

    @property
    def is_shared(self) -> bool:
        """Return True if several addresses ask, or did a moment ago."""
        return time.monotonic() < self._shared_until

    def charge(self, address: str, seconds: float) -> None:
        """Count what was done for an address, if others ask as well."""
        if self.has_others(address):
            self._time.spend(address, seconds)

    def rest_of(self, address: str) -> float:
        """Return how many seconds an address has to rest."""
        return self._time.seconds_until(address) if self.has_others(address) else 0.0

    def has_others(self, address: str) -> bool:
        """Tell whether others ask beside an address."""
        return self.is_shared or self._is_shared_with(address)

    def lock_of(self, address: str) -> asyncio.Lock:
        """Return what lets an address do one thing beside the event loop at a time."""
        return self._locks.setdefault(address, asyncio.Lock())

    def take(self, address: str, begin: Begin) -> None:
        """Begin a request of this address now or when it is its turn."""
        now = time.monotonic()
        if address and address != self._last:  # who has been cut off has none, and is nobody else
            self._shared_until, self._last = (now + SHARED_SECONDS if self._last else now), address
        self.num_waiting += 1
        if (line := self._lines.get(address)) is not None:
            line.append(begin)
            return
        self._lines[address] = deque([begin])
        self._go_on(address)

    def _go_on(self, address: str) -> None:
        """Begin the next requests of a line; forget one that has ended."""
        line = self._lines[address]
        if not line:
            del self._lines[address]
            return
        loop, again = asyncio.get_running_loop(), partial(self._go_on, address)
        if rest := self.rest_of(address):
            loop.call_later(rest, again)
            return
        for _ in range(1 if self.has_others(address) else min(AT_ONCE, len(line))):
            self.num_waiting -= 1
            line.popleft()()
        loop.call_soon(again)


class Account(NamedTuple):
    """An address whose time is counted."""

    turns: Turns
    address: str


_ACCOUNT: ContextVar[Account | None] = ContextVar("account", default=None)


def in_turn(begin: Begin) -> None:
    """Do something for the address of the request at hand when it is its turn."""
    if (account := _ACCOUNT.get()) is None:
        begin()
    else:
        account.turns.take(account.address, begin)


async def rest() -> None:
    """Wait until the address of the request at hand may go on."""
    account = _ACCOUNT.get()
    while account is not None and (seconds := account.turns.rest_of(account.address)):
        await asyncio.sleep(seconds)


async def run_in_thread(call: Callable[..., Result], *given: Any) -> Result:
    """Return what a call returns, made in a thread; the address of the request at hand pays for it."""
    loop, account = asyncio.get_running_loop(), _ACCOUNT.get()

    def count() -> Result:
        since = time.thread_time()
        try:
            return call(*given)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                if account is not None:  # also where nobody waits for it any more
                    loop.call_soon_threadsafe(account.turns.charge, account.address, time.thread_time() - since)

    async with one_at_a_time():
        return await asyncio.to_thread(count)


@contextlib.asynccontextmanager
async def one_at_a_time() -> AsyncIterator[None]:
    """Let the address of the request at hand do one thing beside the loop, when it has rested, while others ask."""
    account = _ACCOUNT.get()
    async with contextlib.AsyncExitStack() as stack:
        if account is not None and account.turns.is_shared:
            await stack.enter_async_context(account.turns.lock_of(account.address))
            await rest()
        yield


@final
class AccountedWork:
    """Work whose steps in the event loop an address pays for."""

    def __init__(self, work: Awaitable[None], account: Account) -> None:
        self._work, self._account = work, account

    def __await__(self) -> Generator[Any, Any, None]:
        turns, address = self._account
        _ACCOUNT.set(self._account)
        steps: Any = self._work.__await__()
        go_on: Callable[[], Any] = partial(next, steps)
        while True:
            since = time.thread_time()
            try:
                waits_for = go_on()
            except StopIteration:
                return
            finally:
                turns.charge(address, time.thread_time() - since)
            try:
                yield waits_for
                go_on = partial(next, steps)
            except BaseException as error:
                go_on = partial(steps.throw, error)
