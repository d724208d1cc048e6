"""What stands before every route: who may ask, how much they may send, and what browsers are told."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from saccade.data.text.corpus import read_lines
from saccade.errors import UserError
from saccade.serving.http.answers import Refusal, send_error

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = [
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     b"img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]  # fmt: skip
RETRY = 5  # seconds, when another server takes over
MOST_BYTES = 256 << 20  # of all bodies inside together
SHORTEST_KEY = 8
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@final
class Keys:
    """API keys, compared in constant time; without any, everybody may ask."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys]

    @property
    def are_required(self) -> bool:
        """Whether a key must be given."""
        return bool(self._digests)

    def check(self, given: object) -> None:
        """Refuse a missing key (400) and a wrong one (403), as LibreTranslate does."""
        if not self._digests:
            return
        if not isinstance(given, str) or not given:
            raise Refusal(400, "Please contact the server operator to get an API key")
        digest = _digest(given)
        matches = [hmac.compare_digest(digest, known) for known in self._digests]  # all of them, whichever is right
        if not any(matches):
            raise Refusal(403, "Invalid API key")


def bearer(authorization: str | None) -> str | None:
    """The key in an Authorization header."""
    kind, _, token = (authorization or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def read_keys(path: Path) -> tuple[str, ...]:
    """One key a line; # begins a remark."""
    keys = tuple(line for line in read_lines(path) if line and not line.startswith("#"))
    if not keys:
        raise UserError(f"--api-keys: no key in {path}; there must be one a line")
    if short := [number for number, key in enumerate(keys, 1) if len(key) < SHORTEST_KEY]:
        raise UserError(
            f"--api-keys: key {short[0]} of {path} is too short; allowed: {SHORTEST_KEY} characters or more"
        )
    return keys


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def allowed_hosts(host: str, others: Iterable[str]) -> frozenset[str] | None:
    """The names by which a server on a loopback address may be called (DNS rebinding uses another); None: any."""
    if is_loopback(host) or others:
        return frozenset({*LOCAL_NAMES, host.lower(), *(other.lower() for other in others)})
    return None


@final
@dataclass
class Doors:
    """Whether a server takes requests: `is_draining`, what came before is answered, and nothing new is taken."""

    is_ready: bool = False
    is_draining: bool = False
    num_inside: int = 0
    bytes_inside: int = 0


@final
class Guard:
    """Refuses foreign host names and bodies that are too large or too slow; lets work go with the client who left."""

    def __init__(
        self, app: App, doors: Doors, *, hosts: frozenset[str] | None, cors: bool, max_body: int, timeout: float
    ) -> None:
        self.app, self.doors = app, doors
        self.hosts, self.cors, self.max_body, self.timeout = hosts, cors, max_body, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self.hosts is not None and _host(headers.get(b"host", b"")) not in self.hosts:
            await send_error(send, 400, "Invalid host header: this server isn't called so (see --allow-host)")
            return
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:19]) > self.max_body:
            await send_error(send, 413, self.too_large())
            return
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
        elif self.doors.is_draining:
            await send_error(send, 503, "The server is about to stop", RETRY)
        elif headers.get(b"sec-fetch-site") == b"cross-site" and not self.cors:  # a page elsewhere asks in our name
            await send_error(send, 403, "Pages of other sites may not ask (see --cors)")
        else:
            await _Call(self, receive).run(scope, send)

    def too_large(self) -> str:
        """What is said of a body that is."""
        return f"Invalid request: the body exceeds {self.max_body:,} bytes"


@final
class _Call:
    """One request on its way: its body counted as it comes in, its client watched from then on."""

    def __init__(self, guard: Guard, receive: Receive) -> None:
        self.guard, self.receive = guard, receive
        self.size, self.has_left = 0, False
        self.watcher: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self.deadline = loop.time() + guard.timeout

    async def run(self, scope: Scope, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.guard.doors.num_inside += 1
        try:
            await self.guard.app(scope, self.next, send)
        except asyncio.CancelledError:
            if not self.has_left:
                raise
            task.uncancel()
        finally:
            self.guard.doors.num_inside -= 1
            self.guard.doors.bytes_inside -= self.size
            if self.watcher is not None:
                self.watcher.cancel()

    async def next(self) -> Message:
        """The next part of the body, for the app."""
        if self.watcher is not None:
            await self.watcher
            return {"type": "http.disconnect"}
        try:
            async with asyncio.timeout_at(self.deadline):
                message = await self.receive()
        except TimeoutError:
            raise Refusal(408, "Invalid request: the body took too long") from None
        part = len(message.get("body", b""))
        self.size += part
        self.guard.doors.bytes_inside += part
        if self.size > self.guard.max_body:
            raise Refusal(413, self.guard.too_large())
        if self.guard.doors.bytes_inside > MOST_BYTES:
            raise Refusal(429, "Slowdown: too many bodies at once", {"Retry-After": str(RETRY)})
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.watcher = asyncio.ensure_future(self.watch())
        return message

    async def watch(self) -> None:
        """When the client leaves, whoever works for it stops."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.has_left = True
        self.task.cancel()


def _host(value: bytes) -> str:
    """The name in a Host header, without its port."""
    host = value.decode("latin-1").lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
