"""Uvicorn's HTTP protocol with limits: on connections, on the time and size of heads, and on answers nobody reads."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, final

from uvicorn._types import ASGI3Application
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from saccade.serving.http.door import REFUSAL
from saccade.serving.http.turns import Account, AccountedWork, Turns, rest
from saccade.serving.processes.connections import ANSWERED, ASKED, WAITS, HeldConnection
from saccade.serving.shares import FairShare

MAX_HEAD = 1 << 16  # bytes of request line and headers
MAX_HEAD_SECONDS = 15.0  # from the connection, or from a request's first byte
MAX_UNREAD = 128 << 20  # bytes of answers that wait to be read
PROBE_SECONDS = 0.5
SLICE = 1 << 17  # bytes of an answer that are handed to the system at once
NO_LINGER = struct.pack("ii", 1, 0)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@final
class Connections:
    """The connections of a server. `on_close` is called with the reason for each that is refused or cut off."""

    def __init__(self, most: int, timeout: float, on_close: Callable[[str], None] = lambda reason: None) -> None:
        self.timeout, self._on_close = timeout, on_close
        self._share = FairShare(most)
        self._waiting: dict[str, dict[Protocol, None]] = {}  # those without a complete request, the oldest first
        self.open: set[Protocol] = set()

    def add(self, connection: Protocol) -> bool:
        """Take a new connection; if there are too many, close one that waits for its client, or else refuse it."""
        address = connection.address
        if not self._share.allows(address, 1):
            held = self._share.held
            crowded = max(held, key=lambda other: (held[other], other == address))
            oldest = next(iter(self._waiting.get(crowded, ())), None)
            self._on_close("connections")
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.transport.close()
        self.open.add(connection)
        self._share.take(address, 1)
        self.begin_waiting(connection)
        return True

    def remove(self, connection: Protocol) -> None:
        if connection in self.open:
            self.open.discard(connection)
            self._share.give_back(connection.address, 1)
            self.end_waiting(connection)

    def begin_waiting(self, connection: Protocol) -> None:
        """Say that a connection has no complete request: it waits for its client."""
        if connection in self.open:
            self._waiting.setdefault(connection.address, {})[connection] = None

    def end_waiting(self, connection: Protocol) -> None:
        waiting = self._waiting.get(connection.address, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(connection.address, None)

    def cut_unread(self) -> None:
        """Cut off connections whose answers are not read; the server calls this once a second."""
        now = time.monotonic()
        unread = {one: one.measure_unread(now) for one in self.open}
        total = sum(size for size, _ in unread.values())
        by_address = Counter[str]()
        for one, (size, _) in unread.items():
            by_address[one.address] += size
        for one, (size, since) in sorted(unread.items(), key=lambda item: item[1][1]):
            is_too_much = total > MAX_UNREAD and by_address[one.address] == max(by_address.values())
            if size and (now - since > self.timeout or is_too_much):
                total -= size
                by_address[one.address] -= size
                self._on_close("unread")
                one.reset()


@final
class Protocol(HttpToolsProtocol):
    """One connection. It limits the heads of requests; the application limits their bodies."""

    def __init__(self, *args: Any, connections: Connections, turns: Turns, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections, self._turns = connections, turns
        self._head_size = 0
        self._is_head = True
        self._timer: asyncio.TimerHandle | None = None
        self._probe_timer: asyncio.TimerHandle | None = None
        self._unread, self._unread_since = 0, 0.0
        self._unsent = 0  # bytes of an answer that are not with the transport yet
        self._cycle: RequestResponseCycle | None = None  # that is answered
        self._is_partial = False  # a request has begun to come
        self.held: HeldConnection | None = None  # where another process has a handle of the connection

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._connections.add(self):
            self._begin_head()
        else:
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._connections.remove(self)
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        if self.held is not None:
            self.held.end()
        if self._cycle is not None:  # uvicorn tells only the request that came last
            self._cycle.disconnected = True
            self._cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Close the connection if a head is too long."""
        if self.transport.is_closing():
            return
        if self.held is not None and self.is_idle:
            self.held.say(ASKED)
        since = time.thread_time()
        self._head_size += len(data) if self._is_head else 0
        super().data_received(data)
        if self._is_head and self._head_size > MAX_HEAD:
            self.transport.close()
        self._turns.charge(self._client_of(self.cycle), time.thread_time() - since)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that has shut its sending side after a complete request; close if none is complete.

        A client that has closed looks the same until something is sent to it, so an interim answer is.
        """
        if self.cycle is None or self.cycle.more_body or (self.cycle.response_complete and not self.pipeline):
            return False
        self._end_head()
        last = self.pipeline[0][0] if self.pipeline else self.cycle
        last.keep_alive = False
        self._probe_timer = self.loop.call_later(PROBE_SECONDS, self._probe)
        return True

    @property
    def is_idle(self) -> bool:
        """Return True if nothing is asked, and all answers have been sent."""
        is_answered = self.cycle is None or (self.cycle.response_complete and not self.pipeline)
        return is_answered and not self._is_partial and not self.transport.get_write_buffer_size()

    def give_back(self) -> None:
        """Leave an idle connection to the process that has another handle of it, without closing it."""
        assert self.held is not None
        self.transport.pause_reading()
        self.held.is_given_back = True
        self.transport.close()

    def on_message_begin(self) -> None:
        self._is_partial = True
        super().on_message_begin()
        self._begin_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_partial = False
        super().on_message_complete()
        if not self.cycle.response_complete:
            self._connections.end_waiting(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self._connections.begin_waiting(self)
        if self.held is not None:
            self.held.say(WAITS if self.is_idle else ANSWERED if self.transport.get_write_buffer_size() else ASKED)

    def measure_unread(self, now: float) -> tuple[int, float]:
        """Return how many bytes wait to be read, and since when they have not become fewer."""
        size = self.transport.get_write_buffer_size() + self._unsent
        if not size or size < self._unread:
            self._unread_since = now
        self._unread = size
        return size, self._unread_since

    def reset(self) -> None:
        """Cut the connection off, and forget what was not read, also in the kernel."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self.transport.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._turns.take(self._client_of(cycle), partial(self._begin, cycle, app))

    def _client_of(self, cycle: RequestResponseCycle | None) -> str:
        """Return the address of whoever asks: behind a proxy that is trusted, the one that it names."""
        if cycle is not None and is_proxy(self.app, self.address):
            assert isinstance(self.app, ProxyHeadersMiddleware)
            named = [value for name, value in cycle.scope["headers"] if name == b"x-forwarded-for"]
            host, _ = self.app.trusted_hosts.get_trusted_client_address(b", ".join(named).decode("latin-1"))
            return host or self.address
        return self.address

    def _begin(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if not self.transport.is_closing():
            self._cycle = cycle
            counted = self._count(app, Account(self._turns, self._client_of(cycle)))
            super()._start_asgi_task(cycle, counted if self.held is None else partial(self._tell_answer, counted))

    def _count(self, app: ASGI3Application, account: Account) -> ASGI3Application:
        async def call(scope: Any, receive: Any, send: Any) -> None:
            await AccountedWork(app(scope, receive, partial(self._send_in_slices, send)), account)

        return call

    async def _send_in_slices(self, send: Any, message: Any) -> None:
        """Send a long answer in parts, between which others come; one that is not read waits here."""
        body = memoryview(message.get("body", b""))
        if len(body) <= SLICE:
            await send(message)
            return
        self._unsent = len(body)
        for start in range(0, len(body), SLICE):
            await rest()
            part, is_last = body[start : start + SLICE], start + SLICE >= len(body)
            await send({**message, "body": part, "more_body": message.get("more_body", False) or not is_last})
            self._unsent -= len(part)
            await asyncio.sleep(0)

    async def _tell_answer(self, app: ASGI3Application, scope: Any, receive: Any, send: Any) -> None:
        """Have a request answered, and say when the answer begins."""

        async def told(message: Any) -> None:
            if self.held is not None:
                self.held.say(ANSWERED)
            await send(message)

        await app(scope, receive, told)

    def _probe(self) -> None:
        """Send an interim answer: it fails, at the second time, if the client has closed the connection."""
        if not self.transport.is_closing() and not self.cycle.response_started:
            if self.scope["http_version"] != "1.0" and not self.pipeline:
                self.transport.write(CONTINUE)
            self._probe_timer = self.loop.call_later(PROBE_SECONDS, self._probe)

    def _begin_head(self) -> None:
        self._end_head()
        self._is_head = True
        self._timer = self.loop.call_later(MAX_HEAD_SECONDS, self.transport.close)

    def _end_head(self) -> None:
        self._is_head, self._head_size = False, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def is_proxy(app: Any, address: str) -> bool:
    """Tell whether an address is that of a proxy whose word is taken for who asks."""
    return isinstance(app, ProxyHeadersMiddleware) and address in app.trusted_hosts
