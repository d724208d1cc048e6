"""Batches of requests to one model: a thread that owns the model, and a bounded queue in front of it.

The event loop never computes: it puts a ticket into the queue and waits for its future. The thread takes waiting items,
one of each request in turn so that a long request does not delay short ones, and answers them as one batch.
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

MAX_CHARACTERS = 8192  # in a batch, so that each batch takes seconds at most
MAX_BYTES = 256 << 20  # of waiting pictures
BYTES_A_CHARACTER = 64  # a picture of 28 x 28 pixels counts as a dozen
MAX_RETRY = 60  # seconds


class ModelCall(NamedTuple):
    """A function of a model, items and options. Equal calls share batches."""

    call: Callable[..., Sequence[Any]]
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, model: Any, items: list[Any]) -> list[Any]:
        """Return an answer for each item."""
        return list(self.call(model, items, **dict(self.options)))


class QueueFull(Exception):
    """The queue is full; it may have room after `retry_after` seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class QueueClosed(Exception):
    """The queue accepts nothing new: the server is stopping."""


class RequestBatch(NamedTuple):
    """The size and the time of a batch, for metrics."""

    num_items: int
    seconds: float


@final
@dataclass(eq=False)
class _Ticket:
    """One request: its items, their answers so far, and the loop that waits for them."""

    work: ModelCall
    items: Sequence[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[list[Any]]
    arrived: float = field(default_factory=time.monotonic)
    next: int = 0
    answers: list[Any] = field(default_factory=list)

    @property
    def num_waiting(self) -> int:
        return len(self.items) - self.next


@final
class Batcher:
    """The queue of one model and its thread. `on_batch` is called after each batch."""

    def __init__(
        self,
        model: Any,
        *,
        wait: float = 0.004,
        max_queue: int = 1024,
        max_items: int = 256,
        on_batch: Callable[[RequestBatch], None] = lambda batch: None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self.model, self.wait, self.max_queue, self.max_items = model, wait, max_queue, max_items
        self._on_batch, self._prepare = on_batch, prepare
        self._changed = threading.Condition()
        self._waiting: deque[_Ticket] = deque()
        self._num_waiting = self._bytes = 0
        self._is_closed = False
        self._seconds_an_item = 0.01
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def num_waiting(self) -> int:
        """The number of items in the queue."""
        return self._num_waiting

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Accept nothing new; waiting items are still answered."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def join(self, timeout: float | None = None) -> None:
        """Wait until all items are answered."""
        self._thread.join(timeout)

    async def submit(self, work: ModelCall, items: Sequence[Any]) -> list[Any]:
        """Return an answer for each item. If the caller is cancelled, items that have not begun leave the queue."""
        if not items:
            return []
        loop = asyncio.get_running_loop()
        ticket = _Ticket(work, items, loop, loop.create_future())
        size = sum(getattr(item, "nbytes", 0) for item in items)
        with self._changed:
            if self._is_closed:
                raise QueueClosed
            if self._num_waiting and self._num_waiting + len(items) > self.max_queue:
                raise QueueFull(self._retry_after())
            if self._bytes and self._bytes + size > MAX_BYTES:
                raise QueueFull(self._retry_after())
            self._bytes += size
            self._waiting.append(ticket)
            self._num_waiting += len(items)
            self._changed.notify()
        try:
            return await ticket.future
        finally:
            self._withdraw(ticket, size)

    def _withdraw(self, ticket: _Ticket, size: int) -> None:
        with self._changed:
            self._bytes -= size
            if ticket.num_waiting:
                self._waiting.remove(ticket)
                self._num_waiting -= ticket.num_waiting

    def _retry_after(self) -> int:
        return min(MAX_RETRY, max(1, math.ceil(self._num_waiting * self._seconds_an_item)))

    def _run(self) -> None:
        self._prepare()
        while batch := self._wait_for_batch():
            self._answer(batch)

    def _wait_for_batch(self) -> list[tuple[_Ticket, int]]:
        """Wait for the next batch; it is empty when the queue is closed and empty."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return []
                left = self._waiting[0].arrived + self.wait - time.monotonic()
                if left <= 0 or self._num_waiting >= self.max_items or self._is_closed:
                    return self._take()
            time.sleep(left)  # for other requests

    def _take(self) -> list[tuple[_Ticket, int]]:
        """Take items with the same call as the first request, one of each request in turn, as many as fit."""
        work, rows, characters = self._waiting[0].work, list[tuple[_Ticket, int]](), 0
        same = deque(ticket for ticket in self._waiting if ticket.work == work)
        while same and len(rows) < self.max_items and characters < MAX_CHARACTERS:
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
        for (ticket, _), answer in zip(rows, self._call_model(rows), strict=True):
            ticket.answers.append(answer)
        seconds = time.monotonic() - started
        self._seconds_an_item += (seconds / len(rows) - self._seconds_an_item) / 8
        self._on_batch(RequestBatch(len(rows), seconds))
        done = {ticket: None for ticket, _ in rows if len(ticket.answers) == len(ticket.items)}
        for loop, tickets in itertools.groupby(done, key=lambda ticket: ticket.loop):
            loop.call_soon_threadsafe(_deliver, list(tickets))

    def _call_model(self, rows: list[tuple[_Ticket, int]]) -> Iterator[Any]:
        """Return the answers, with failures in their places; if a batch fails, its items are tried one by one."""
        work = rows[0][0].work
        items = [ticket.items[index] for ticket, index in rows]
        try:
            return iter(work(self.model, items))
        except Exception as error:
            if len(rows) == 1:
                return iter([_Failure(error)])
            return itertools.chain.from_iterable(self._call_model([row]) for row in rows)


class _Failure(NamedTuple):
    error: Exception


def _size(item: Any) -> int:
    """Return the characters of a text or of several; a picture counts by its bytes."""
    if isinstance(item, tuple):
        return sum(map(_size, item))
    return len(item) if isinstance(item, str) else getattr(item, "nbytes", 0) // BYTES_A_CHARACTER


def _deliver(tickets: list[_Ticket]) -> None:
    """Set the results of the futures that still wait; this runs in the event loop."""
    for ticket in tickets:
        if ticket.future.done():
            continue
        failure = next((answer for answer in ticket.answers if isinstance(answer, _Failure)), None)
        if failure is None:
            ticket.future.set_result(ticket.answers)
        else:
            ticket.future.set_exception(failure.error)
