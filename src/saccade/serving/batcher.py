"""Batches of requests to one model: fair queues, and threads that compute in turn, one at a time.

The event loop never computes: it puts a ticket into a queue and waits for its future. A thread takes waiting items of
one kind and answers them as one batch. Quick work (by its estimated cost) and slow work wait in queues of their own and
never share a batch. Slow batches compute in slices, between the steps of their search: quick ones go first, but slow
ones always get a share of the time; of several slow ones the one that had least is next. Whoever asks for much quick
work has the rest of it done as slow work. Whoever leaves takes its rows along. Where there are workers, slow batches
are theirs: then a quick one waits for nobody's step.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

from saccade.decoding.slices import ComputationEnded, supervise
from saccade.serving.processes.workers import ModelWorkers, WorkerLost
from saccade.serving.shares import Allowance, FairShare
from saccade.serving.waiting import MOST_SHARE, FairQueue, ModelCall, Part, Row, Ticket

BATCH_SECONDS = 0.5  # that a batch should take, as far as its cost tells
SLOW_BATCH_SECONDS = 0.1  # that a slow one should take while others ask: they wait for one step of it
LEAST_COST = 2048  # that a batch may have, however slow the model is
FIRST_RATE = 10_000  # of cost a second, until it has been measured
QUICK_SECONDS = 2.0  # a quick batch that takes longer was none, and goes on as a slow one
SLICE = 0.1  # seconds that a slow batch computes before another slow one, which had less, may
SLOW_SHARE = 0.25  # of the time of quick batches, for slow ones
QUICK_SHARE = 0.1  # of the time, for the quick work of one client; what it asks for beyond that is slow
QUICK_AT_ONCE = 0.2  # seconds of it
SHARED_SECONDS = 2.0  # that other clients are remembered
MAX_SLOW = 3  # batches that are computed in turn; each has its state in memory
MAX_DEMOTED = 2  # more than those
MAX_BYTES = 256 << 20  # of waiting pictures
CHARACTERS_A_PIECE = 4
BYTES_A_PIECE = 256  # a picture of 28 x 28 pixels counts as four
MAX_RETRY = 60  # seconds


class QueueFull(Exception):
    """The queue has no room for this client (`full`) or no time (`late`); it may have after `retry_after` seconds."""

    def __init__(self, reason: str, retry_after: int) -> None:
        super().__init__(reason, retry_after)
        self.reason, self.retry_after = reason, retry_after


class QueueClosed(Exception):
    """The queue accepts nothing new: the server is stopping."""


class RequestBatch(NamedTuple):
    """The size of a batch, and the time that it computed, for metrics."""

    num_items: int
    seconds: float


class _Failure(NamedTuple):
    error: Exception


@final
class _Batch:
    """Rows that are answered together; the supervisor of the computation that answers them."""

    def __init__(self, batcher: Batcher, rows: list[Row], *, is_slow: bool) -> None:
        self.batcher, self.rows, self.is_slow = batcher, rows, is_slow
        self.current = rows  # what is computed now: all of them, or one by one if they failed together
        self.used, self.since = 0.0, time.monotonic()
        self.is_beside = False  # a worker computes it
        self.resumed = threading.Condition(batcher.lock)

    @property
    def clients(self) -> set[str]:
        return {row.ticket.client for row in self.rows}

    def pause(self) -> None:
        self.batcher.pause(self)

    def find_wanted(self) -> list[bool] | None:
        wanted = [not row.ticket.is_gone for row in self.current]
        return None if all(wanted) else wanted


@final
class Batcher:
    """The queues of one model and its threads.

    `on_batch` is called after each batch, `on_begin` with the seconds that a request has waited, `prepare` in each
    thread. Nobody may wait longer than `max_wait` seconds, by estimate; clients share the `max_queue` items fairly.
    """

    def __init__(
        self,
        model: Any,
        *,
        wait: float = 0.004,
        max_queue: int = 1024,
        max_items: int = 256,
        max_wait: float = math.inf,
        on_batch: Callable[[RequestBatch], None] = lambda batch: None,
        on_begin: Callable[[float], None] = lambda seconds: None,
        prepare: Callable[[], None] = lambda: None,
        workers: ModelWorkers | None = None,
    ) -> None:
        self.model, self.wait, self.max_items, self.max_wait = model, wait, max_items, max_wait
        self._on_batch, self._on_begin, self._prepare, self._workers = on_batch, on_begin, prepare, workers
        self.lock = threading.Lock()
        self._idle = threading.Condition(self.lock)  # threads that wait for a batch to begin
        self._quick, self._slow = FairQueue(), FairQueue()
        self._items, self._bytes = FairShare(max_queue), FairShare(MAX_BYTES)
        self._allowance = Allowance(QUICK_AT_ONCE, QUICK_SHARE)
        self._last_client: str | None = None
        self._shared_until = -math.inf
        self._rates = {False: float(FIRST_RATE), True: float(FIRST_RATE)}  # of quick and slow batches
        self._running: list[_Batch] = []
        self._turn: _Batch | None = None  # the one that computes
        self._credit = 0.0  # seconds that slow batches may compute before quick ones
        self._moved = 0.0  # when the one that computes came by a pause
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self._num_idle = 0

    @property
    def num_waiting(self) -> int:
        """The number of items in the queues."""
        return self._items.total

    @property
    def seconds_behind(self) -> float:
        """Return how long the oldest ticket has waited, or the model has not moved, whichever is longer."""
        now = time.monotonic()
        with self.lock:
            oldest = min(self._quick.oldest, self._slow.oldest)
            return max(0.0, now - oldest, now - self._moved if self._turn is not None else 0.0)

    def start(self) -> None:
        with self.lock:
            self._add_thread()

    def close(self) -> None:
        """Accept nothing new; waiting items are still answered."""
        with self.lock:
            self._is_closed = True
            self._idle.notify_all()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all items are answered or withdrawn; return whether they are."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if timeout is None else max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def check_room(self, client: str, num_items: int) -> None:
        """Refuse so many items at once if there is no room for them, before anything is done with them."""
        with self.lock:
            if self._is_closed:
                raise QueueClosed
            if not self._items.allows(client, num_items):
                raise QueueFull("full", 1)

    async def submit(
        self, call: ModelCall, items: Sequence[Any], *, client: str = "", costs: Sequence[int] | None = None
    ) -> list[Any]:
        """Return an answer for each item; `costs` are estimates. If the caller is cancelled, its items are dropped."""
        if not items:
            return []
        ticket = Ticket(call, items, client, asyncio.get_running_loop().create_future())
        parts = list(ticket.split([measure(item) for item in items] if costs is None else costs))
        size = sum(getattr(item, "nbytes", 0) for item in items)
        with self.lock:
            self._rank(parts, client)
            self._admit(parts, client, len(items), size)
            for part in parts:
                self._queue_of(part).add(part)
            self._items.take(client, len(items))
            self._bytes.take(client, size)
            if self._turn is None:
                self._idle.notify()
        try:
            return await ticket.future
        finally:
            self._withdraw(ticket, parts, size)

    def _rank(self, parts: list[Part], client: str) -> None:
        """Make slow what a client has too much of, unless nobody else asks (locked)."""
        now = time.monotonic()
        if client != self._last_client and self._last_client is not None:
            if not self._is_shared(now):
                self._end_being_alone()
            self._shared_until = now + SHARED_SECONDS
        self._last_client = client
        for part in parts if self._is_shared(now) else ():
            if not part.is_slow:
                part.is_over = self._is_over(client, part.cost)

    def _is_shared(self, now: float) -> bool:
        return now < self._shared_until

    def _is_over(self, client: str, cost: int) -> bool:
        return not self._allowance.take(client, cost / self._rates[False])

    def _end_being_alone(self) -> None:
        """Make slow what the one client that was alone until now has too much of (locked)."""
        for part in self._quick.parts():
            if self._is_over(part.ticket.client, part.cost):
                self._quick.remove(part)
                part.is_over = True
                self._slow.add(part)
        for batch in self._running:
            if sum(row.cost for row in batch.rows) > QUICK_AT_ONCE * self._rates[False]:
                batch.is_slow = True

    def _admit(self, parts: list[Part], client: str, num_items: int, size: int) -> None:
        """Refuse what there is no room or no time for."""
        if self._is_closed:
            raise QueueClosed
        waits = [
            self._queue_of(part).cost_before(client, part.cost) / self._rates[self._queue_of(part) is self._slow]
            for part in parts
        ]
        has_room = self._items.allows(client, num_items) and self._bytes.allows(client, size)
        if not has_room or max(waits) > self.max_wait:
            raise QueueFull("late" if has_room else "full", min(MAX_RETRY, max(1, math.ceil(max(waits)))))

    def _queue_of(self, part: Part) -> FairQueue:
        return self._slow if part.is_slow else self._quick

    def _withdraw(self, ticket: Ticket, parts: list[Part], size: int) -> None:
        with self.lock:
            ticket.is_gone = True
            self._bytes.give_back(ticket.client, size)
            self._items.give_back(ticket.client, sum(len(part.items) for part in parts))
            for part in parts:
                self._queue_of(part).remove(part)
            if self._is_closed:
                self._idle.notify_all()

    # The threads. Of each method below that has a lock's word in its docstring, the caller holds the lock.

    def _run(self) -> None:
        self._prepare()
        while (batch := self._begin()) is not None:
            self._answer(batch)

    def _add_thread(self) -> None:
        """Start a thread that waits for a batch (locked)."""
        self._num_idle += 1
        thread = threading.Thread(target=self._run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _begin(self) -> _Batch | None:
        """Wait for the turn to begin a batch; None: there will be no more."""
        with self.lock:
            while True:
                found = self._next() if self._turn is None else None
                if isinstance(found, FairQueue):
                    return self._take(found)
                if found is not None:
                    self._resume(found)
                if self._is_closed and not self.num_waiting:
                    return None
                self._idle.wait(None if self._turn is not None else self._seconds_until_due())

    def _take(self, queue: FairQueue) -> _Batch:
        """Begin a batch with the next items of a queue (locked)."""
        is_slow, is_shared = queue is self._slow, self._is_shared(time.monotonic())
        seconds = SLOW_BATCH_SECONDS if is_slow and is_shared else BATCH_SECONDS
        most, share = max(LEAST_COST, int(seconds * self._rates[is_slow])), MOST_SHARE if is_shared else 1.0
        rows = queue.take(self.max_items, most, self._slow_clients() if is_slow else (), most_share=share)
        batch = self._turn = _Batch(self, rows, is_slow=is_slow)
        self._running.append(batch)
        self._moved = batch.since
        for row in rows:
            self._items.give_back(row.ticket.client, 1)
            if not row.ticket.has_begun:
                row.ticket.has_begun = True
                self._on_begin(batch.since - row.ticket.arrived)
        self._num_idle -= 1
        return batch

    def _next(self, holder: _Batch | None = None) -> FairQueue | _Batch | None:
        """Choose what computes next: a batch that goes on, a queue to begin one from, or nothing (locked)."""
        slow: FairQueue | _Batch | None = min(
            (batch for batch in self._running if batch.is_slow and not batch.is_beside),
            key=lambda batch: batch.used - (SLICE if batch is holder else 0),
            default=None,
        )
        may_begin = self._is_due(self._slow) and self._has_slow_room()
        if may_begin and (holder is None or holder.used > SLICE):
            slow = self._slow
        if self._is_due(self._quick) and (slow is None or self._credit <= 0):
            return self._quick
        return slow

    def _is_due(self, queue: FairQueue) -> bool:
        """Tell whether a batch of a queue may begin: others have had a moment to join it (locked)."""
        is_full = self._is_closed or queue.num_items >= self.max_items
        return queue.num_items > 0 and (is_full or time.monotonic() >= queue.since + self.wait)

    def _seconds_until_due(self) -> float | None:
        """Return how long to wait for the next batch to be due; None: until something comes (locked)."""
        waiting = [self._quick.since + self.wait] if self._quick.num_items else []
        waiting += [self._slow.since + self.wait] if self._slow.num_items and self._has_slow_room() else []
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def _has_slow_room(self) -> bool:
        """Tell whether a slow batch may begin: there are not too many, and a client waits that has none (locked)."""
        num_slow = sum(batch.is_slow for batch in self._running)
        return num_slow < MAX_SLOW and self._slow.has_any(self._slow_clients())

    def _slow_clients(self) -> set[str]:
        """Return the clients that have a slow batch: each may have one (locked)."""
        return set().union(*(batch.clients for batch in self._running if batch.is_slow))

    def pause(self, batch: _Batch) -> None:
        """Let others go before a batch that computes, if it is their turn; end it if nobody waits for it."""
        now = self._moved = time.monotonic()
        if all(row.ticket.is_gone for row in batch.rows):
            raise ComputationEnded
        if not batch.is_slow and batch.used + now - batch.since < QUICK_SECONDS:
            return
        with self.lock:
            self._account(batch)
            if not batch.is_slow and len(self._running) > MAX_SLOW + MAX_DEMOTED:
                return
            batch.is_slow = True
            if (found := self._next(holder=batch)) is batch:
                return
            self._leave_turn(found)
            while self._turn is not batch:
                batch.resumed.wait()
            batch.since = time.monotonic()

    def _leave_turn(self, found: FairQueue | _Batch | None) -> None:
        """Let something else compute: a batch goes on, or a thread that has none begins one (locked)."""
        self._turn = None
        if isinstance(found, _Batch):
            self._resume(found)
        elif self._num_idle:
            self._idle.notify()
        else:
            self._add_thread()

    def _resume(self, batch: _Batch) -> None:
        """Give the turn to a batch that had been paused (locked)."""
        self._turn = batch
        self._moved = time.monotonic()
        batch.resumed.notify()

    def _account(self, batch: _Batch) -> None:
        """Count the time that a batch has computed; slow ones pay for what quick ones waited (locked)."""
        now = time.monotonic()
        seconds, batch.since = now - batch.since, now
        batch.used += seconds
        if not batch.is_slow:
            is_shared = self._slow.num_items or any(other.is_slow for other in self._running)
            self._credit = min(SLICE, self._credit + SLOW_SHARE * seconds) if is_shared else 0.0
        elif self._quick.num_items and not batch.is_beside:
            self._credit -= min(seconds, now - self._quick.since)

    def _answer(self, batch: _Batch) -> None:
        answers = self._compute(batch)
        with self.lock:
            self._account(batch)
            self._running.remove(batch)
            self._turn = None if self._turn is batch else self._turn
            self._num_idle += 1
            rate = sum(row.cost for row in batch.rows) / max(batch.used, 1e-6)
            self._rates[batch.is_slow] += (rate - self._rates[batch.is_slow]) * min(0.5, batch.used)
        self._on_batch(RequestBatch(len(batch.rows), batch.used))
        for ticket in _store(batch.rows, answers):
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                ticket.future.get_loop().call_soon_threadsafe(_deliver, ticket)

    def _compute(self, batch: _Batch) -> Sequence[Any]:
        """Return the answers of a batch, with failures in their places."""
        try:
            with supervise(batch):
                return self._call_model(batch, batch.rows)
        except ComputationEnded:
            return [_Failure(QueueClosed())] * len(batch.rows)

    def _call_model(self, batch: _Batch, rows: list[Row]) -> list[Any]:
        """Return the answers; if all rows fail together, they are tried one by one."""
        batch.current = rows
        try:
            return self._call(batch, rows[0].ticket.call, [row.ticket.items[row.number] for row in rows])
        except Exception as error:
            if len(rows) == 1:
                return [_Failure(error)]
        return [answer for row in rows for answer in self._call_model(batch, [row])]

    def _call(self, batch: _Batch, call: ModelCall, items: list[Any]) -> list[Any]:
        """Call the model here, or have a worker do it and let others compute meanwhile."""
        worker = self._workers.hire(call) if batch.is_slow and self._workers is not None else None
        if self._workers is None or worker is None:
            if batch.is_beside:
                raise WorkerLost
            return call(self.model, items)
        self._step_aside(batch)
        return self._workers.compute(worker, call, items, batch)

    def _step_aside(self, batch: _Batch) -> None:
        """Let others compute while a worker does."""
        with self.lock:
            if not batch.is_beside:
                self._account(batch)
                batch.is_beside = True
                self._leave_turn(self._next())


def measure(item: Any) -> int:
    """Estimate the cost of an item by its size: a text's pieces, or a picture's bytes."""
    if isinstance(item, tuple):
        return sum(map(measure, item))
    if isinstance(item, str):
        return 1 + len(item) // CHARACTERS_A_PIECE
    return 1 + getattr(item, "nbytes", 0) // BYTES_A_PIECE


def _store(rows: list[Row], answers: Sequence[Any]) -> list[Ticket]:
    """Store answers in their tickets; return the tickets that are complete, or have failed."""
    for row, answer in zip(rows, answers, strict=True):
        row.ticket.answers[row.number] = answer
    failed = [row.ticket for row, answer in zip(rows, answers, strict=True) if isinstance(answer, _Failure)]
    complete = [row.ticket for row in rows if len(row.ticket.answers) == len(row.ticket.items)]
    return list(dict.fromkeys([*failed, *complete]))


def _deliver(ticket: Ticket) -> None:
    """Set the result of a future that still waits; this runs in the event loop."""
    if ticket.future.done():
        return
    failure = next((answer for answer in ticket.answers.values() if isinstance(answer, _Failure)), None)
    if failure is None:
        ticket.future.set_result([ticket.answers[index] for index in range(len(ticket.items))])
    else:
        ticket.future.set_exception(failure.error)
