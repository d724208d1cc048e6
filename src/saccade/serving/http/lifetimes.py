"""A request from its head to its answer: its size and its time are limited, and who leaves takes the work along."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, final

from saccade.serving.http.responses import Refusal, send_error
from saccade.serving.http.turns import in_turn, rest
from saccade.serving.shares import FairShare

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BYTES = 256 << 20  # of all request bodies in memory
MAX_REQUESTS = 1024  # that are answered at the same time
RETRY = 5  # seconds: until another server has taken over


@final
@dataclass
class Readiness:
    """The state of a server that takes requests or doesn't, and the requests that it has.

    While it `is_draining`, /ready says 503 and answers close their connections; when it `is_refusing`, it answers what
    it has and refuses what is new.
    """

    is_ready: bool = False
    is_draining: bool = False
    is_refusing: bool = False
    requests: FairShare = field(default_factory=lambda: FairShare(MAX_REQUESTS))
    bodies: FairShare = field(default_factory=lambda: FairShare(MAX_BYTES))
    open: set[OpenRequest] = field(default_factory=set)

    def end_all(self, make_refusal: Callable[[], Refusal]) -> None:
        """Answer all open requests with an error."""
        for request in list(self.open):
            request.end(make_refusal())


@final
class OpenRequest:
    """One request: counts its body as it arrives, then watches whether the client leaves.

    `max_values` bounds its commas: JSON of a million numbers would take seconds to read, and everybody would wait.
    """

    def __init__(
        self, app: App, readiness: Readiness, *, client: str, max_body: int, max_values: float, timeout: float
    ) -> None:
        self.app, self.readiness, self.client = app, readiness, client
        self.max_body, self.max_values, self.timeout = max_body, max_values, timeout
        self.size, self.num_values, self.is_complete = 0, 0, False
        self.has_started = self.has_left = False  # its answer; its client
        self.refusal: Refusal | None = None
        self.watcher: asyncio.Task[None] | None = None

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have it answered: by the app, or with an error if that takes too long."""
        if not self.readiness.requests.allows(self.client, 1):
            return await send_refusal(scope, send, slow_down("requests"))
        self._receive, self._send = receive, send
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.readiness.requests.take(self.client, 1)
        self.readiness.open.add(self)
        self._begin_timer()
        try:
            await self.app(scope, self.next, self.send)
        except asyncio.CancelledError:
            if not self.has_left and self.refusal is None:
                raise
            task.uncancel()
        finally:
            self.timer.cancel()
            self.readiness.open.discard(self)
            self.readiness.requests.give_back(self.client, 1)
            self.readiness.bodies.give_back(self.client, self.size)
            if self.watcher is not None:
                self.watcher.cancel()
        if self.refusal is not None and not self.has_started:
            await send_refusal(scope, send, self.refusal)
        return None

    def end(self, refusal: Refusal) -> None:
        """Answer with an error, whatever it is doing."""
        self.refusal = refusal
        self.task.cancel()

    async def next(self) -> Message:
        """Return the next part of the body to the app."""
        if self.watcher is not None:
            await self.watcher
            return {"type": "http.disconnect"}
        await rest()
        message = await self._receive()
        if message["type"] == "http.disconnect":
            await self._leave()
        part = len(message.get("body", b""))
        self.num_values += message.get("body", b"").count(b",")
        if self.size + part > self.max_body:
            raise too_large(self.max_body)
        if self.num_values > self.max_values:
            raise Refusal(413, "Invalid request: the body has too many values", reason="body size")
        if not self.readiness.bodies.allows(self.client, part):
            raise slow_down("bodies")
        self.size += part
        self.readiness.bodies.take(self.client, part)
        if not message.get("more_body", False):
            self.is_complete = True
            self.timer.cancel()
            self._begin_timer()
            self.watcher = asyncio.ensure_future(self._watch())
        return message

    async def send(self, message: Message) -> None:
        self.has_started = True
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.timer.cancel()  # the answer is there; who reads it slowly has the time of `Connections`
        await self._send(message)

    def _begin_timer(self) -> None:
        """Let it end if it takes too long: in turn, as a client may have hundreds that are late at once."""
        self.timer = asyncio.get_running_loop().call_later(self.timeout, in_turn, self._end_late)

    def _end_late(self) -> None:
        if self in self.readiness.open:  # it may have ended before its turn
            self.end(self._late())

    def _late(self) -> Refusal:
        if self.is_complete:
            return Refusal(504, f"Timeout: no answer within {self.timeout:g} seconds", reason="timeout")
        return Refusal(408, "Invalid request: the body took too long", reason="body time")

    async def _watch(self) -> None:
        """Wait until the client leaves, then cancel its work."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        await self._leave()

    async def _leave(self) -> None:
        self.has_left = True
        self.task.cancel()
        await asyncio.sleep(0)  # where the request's own task is cancelled


def make_stopping_refusal() -> Refusal:
    """Make the answer to whoever asks too late."""
    return Refusal(503, "The server is stopping", {"Retry-After": str(RETRY)}, reason="stopping")


def slow_down(what: str) -> Refusal:
    """Make the answer to a client that has too much of something at once."""
    return Refusal(429, f"Slowdown: too many {what} at once", {"Retry-After": "1"}, reason=what)


def too_large(max_body: int) -> Refusal:
    """Make the answer to a body that is too large."""
    return Refusal(413, f"Invalid request: the body exceeds {max_body:,} bytes", reason="body size")


async def send_refusal(scope: Scope, send: Send, refusal: Refusal) -> None:
    """Send an error response before a route is reached, or in its place."""
    scope["refusal"] = refusal.reason
    await send_error(send, refusal.status_code, refusal.detail, refusal.headers)
