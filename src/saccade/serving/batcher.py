"""Requests to one model, answered together: a thread that owns the model, and a queue with a limit in front of it.

The event loop never computes: it leaves a ticket and waits for its future. The thread takes what waits, one item of
each request in turn so that a long one doesn't hold up the short ones, and answers it as one batch.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

MOST_CHARACTERS = 8192  # in a batch: the thread looks up again within seconds, whoever asks for what
MOST_BYTES = 256 << 20  # of pictures that wait
BYTES_A_CHARACTER = 64  # a picture of 28 x 28 pixels counts as a dozen
LONGEST_RETRY = 60  # seconds


class ModelCall(NamedTuple):
    """What is to be done with items: a function of a model, items and options. Equal work is done together."""

    call: Callable[..., Sequence[Any]]
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, model: Any, items: list[Any]) -> list[Any]:
        """An answer for each item."""
        return list(self.call(model, items, **dict(self.options)))


class Full(Exception):
    """The queue is; `retry_after` seconds from now it may not be."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class Closed(Exception):
    """Nothing new is taken: the server is about to stop."""


class RequestBatch(NamedTuple):
    """What was answered together, for those who count."""

    num_items: int
    seconds: float


@final
@dataclass(eq=False)
class _Ticket:
    """One request: its items, what was found for them so far, and the loop that waits."""

    work: ModelCall
    items: Sequence[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[list[Any]]
    arrived: float = field(default_factory=time.monotonic)
    next: int = 0
    found: list[Any] = field(default_factory=list)

    @property
    def num_waiting(self) -> int:
        return len(self.items) - self.next


@final
class Batcher:
    """One model's queue and its thread. `watch` is told of every batch."""

    def __init__(
        self,
        model: Any,
        *,
        wait: float = 0.004,
        max_queue: int = 1024,
        max_items: int = 256,
        watch: Callable[[RequestBatch], None] = lambda batch: None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self.model, self.wait, self.max_queue, self.max_items = model, wait, max_queue, max_items
        self._watch, self._prepare = watch, prepare
        self._changed = threading.Condition()
        self._waiting: deque[_Ticket] = deque()
        self._num_waiting = self._bytes = 0
        self._is_closed = False
        self._seconds_an_item = 0.01
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def num_waiting(self) -> int:
        """Items in the queue."""
        return self._num_waiting

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Take nothing new; what waits is answered."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def join(self, timeout: float | None = None) -> None:
        """Wait until all is answered."""
        self._thread.join(timeout)

    async def submit(self, work: ModelCall, items: Sequence[Any]) -> list[Any]:
        """An answer for each item. Whoever stops waiting takes along what has not begun."""
        if not items:
            return []
        loop = asyncio.get_running_loop()
        ticket = _Ticket(work, items, loop, loop.create_future())
        size = sum(getattr(item, "nbytes", 0) for item in items)
        with self._changed:
            if self._is_closed:
                raise Closed
            if self._num_waiting and self._num_waiting + len(items) > self.max_queue:
                raise Full(self._retry_after())
            if self._bytes and self._bytes + size > MOST_BYTES:
                raise Full(self._retry_after())
            self._bytes += size
            self._waiting.append(ticket)
            self._num_waiting += len(items)
            self._changed.notify()
        try:
            return await ticket.future
        finally:
            self._forget(ticket, size)

    def _forget(self, ticket: _Ticket, size: int) -> None:
        with self._changed:
            self._bytes -= size
            if ticket.num_waiting:
                self._waiting.remove(ticket)
                self._num_waiting -= ticket.num_waiting

    def _retry_after(self) -> int:
        return min(LONGEST_RETRY, max(1, math.ceil(self._num_waiting * self._seconds_an_item)))

    def _run(self) -> None:
        self._prepare()
        while batch := self._next():
            self._answer(batch)

    def _next(self) -> list[tuple[_Ticket, int]]:
        """The next batch; empty when the queue is, and stays so."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return []
                left = self._waiting[0].arrived + self.wait - time.monotonic()
                if left <= 0 or self._num_waiting >= self.max_items or self._is_closed:
                    return self._take()
            time.sleep(left)  # others may come

    def _take(self) -> list[tuple[_Ticket, int]]:
        """Items of the same work as the first request's: one of each request in turn, as many as a batch holds."""
        work, rows, characters = self._waiting[0].work, list[tuple[_Ticket, int]](), 0
        same = deque(ticket for ticket in self._waiting if ticket.work == work)
        while same and len(rows) < self.max_items and characters < MOST_CHARACTERS:
            ticket = same.popleft()
            rows.append((ticket, ticket.next))
            characters += _size(ticket.items[ticket.next])
            ticket.next += 1
            if ticket.num_waiting:
                same.append(ticket)
        taken = {ticket for ticket, _ in rows}
        rest = [ticket for ticket in self._waiting if ticket not in taken]
        self._waiting = deque([*rest, *(ticket for ticket in self._waiting if ticket in taken and ticket.num_waiting)])
        self._num_waiting -= len(rows)
        return rows

    def _answer(self, rows: list[tuple[_Ticket, int]]) -> None:
        started = time.monotonic()
        for (ticket, _), found in zip(rows, self._found(rows), strict=True):
            ticket.found.append(found)
        seconds = time.monotonic() - started
        self._seconds_an_item += (seconds / len(rows) - self._seconds_an_item) / 8
        self._watch(RequestBatch(len(rows), seconds))
        done = {ticket: None for ticket, _ in rows if len(ticket.found) == len(ticket.items)}
        for loop, tickets in itertools.groupby(done, key=lambda ticket: ticket.loop):
            loop.call_soon_threadsafe(_deliver, list(tickets))

    def _found(self, rows: list[tuple[_Ticket, int]]) -> Iterator[Any]:
        """Answers, or the exceptions in their places: of several, only those that fail alone as well."""
        work = rows[0][0].work
        items = [ticket.items[index] for ticket, index in rows]
        try:
            return iter(work(self.model, items))
        except Exception as error:
            if len(rows) == 1:
                return iter([_Failed(error)])
            return itertools.chain.from_iterable(self._found([row]) for row in rows)


class _Failed(NamedTuple):
    error: Exception


def _size(item: Any) -> int:
    """Characters of a text or of several, or what a picture counts as."""
    if isinstance(item, tuple):
        return sum(map(_size, item))
    return len(item) if isinstance(item, str) else getattr(item, "nbytes", 0) // BYTES_A_CHARACTER


def _deliver(tickets: list[_Ticket]) -> None:
    """In the event loop: answers to whoever still waits."""
    for ticket in tickets:
        if ticket.future.done():
            continue
        failed = next((found for found in ticket.found if isinstance(found, _Failed)), None)
        if failed is None:
            ticket.future.set_result(ticket.found)
        else:
            ticket.future.set_exception(failed.error)
