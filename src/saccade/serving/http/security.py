"""Checks before every route: host names, API keys, the size and time of bodies; and the headers of every response."""

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
from saccade.serving.http.responses import Refusal, send_error

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
MaxBody = Callable[[str], int]  # of a path: the most bytes of a body

HEADERS = [
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     b"img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]  # fmt: skip
RETRY = 5  # seconds: until another server has taken over
MAX_BYTES = 256 << 20  # of all request bodies in memory
MIN_KEY_LENGTH = 8
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@final
class Keys:
    """API keys, compared in constant time; without any, every request is allowed."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys]

    @property
    def are_required(self) -> bool:
        return bool(self._digests)

    def check(self, given: object) -> None:
        """Refuse a missing key (400) and a wrong one (403), as LibreTranslate does."""
        if not self._digests:
            return
        if not isinstance(given, str) or not given:
            raise Refusal(400, "Please contact the server operator to get an API key")
        digest = _digest(given)
        matches = [
            hmac.compare_digest(digest, known) for known in self._digests
        ]  # compare all: the time must not tell which one is right
        if not any(matches):
            raise Refusal(403, "Invalid API key")


def bearer(authorization: str | None) -> str | None:
    """Return the key in an Authorization header."""
    kind, _, token = (authorization or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def read_keys(path: Path) -> tuple[str, ...]:
    """Read one key from each line; lines that begin with # are comments."""
    keys = tuple(line for line in read_lines(path) if line and not line.startswith("#"))
    if not keys:
        raise UserError(f"--api-keys: no key in {path}; it must have one on each line")
    if short := [number for number, key in enumerate(keys, 1) if len(key) < MIN_KEY_LENGTH]:
        raise UserError(
            f"--api-keys: key {short[0]} of {path} is too short; allowed: {MIN_KEY_LENGTH} characters or more"
        )
    return keys


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def allowed_hosts(host: str, others: Iterable[str]) -> frozenset[str] | None:
    """Return the allowed Host names of a server on a loopback address (DNS rebinding uses another name); None: any."""
    if is_loopback(host) or others:
        return frozenset({*LOCAL_NAMES, host.lower(), *(other.lower() for other in others)})
    return None


@final
@dataclass
class Readiness:
    """Whether a server accepts requests. While `is_draining`, it answers those that it has and refuses new ones."""

    is_ready: bool = False
    is_draining: bool = False
    num_requests: int = 0
    body_bytes: int = 0


@final
class LimitsMiddleware:
    """Refuses unknown host names and bodies that are too large or too slow; cancels the work of clients that left."""

    def __init__(
        self,
        app: App,
        readiness: Readiness,
        *,
        hosts: frozenset[str] | None,
        cors: bool,
        max_body: MaxBody,
        timeout: float,
    ) -> None:
        self.app, self.readiness = app, readiness
        self.hosts, self.cors, self.max_body, self.timeout = hosts, cors, max_body, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self.hosts is not None and _host_name(headers.get(b"host", b"")) not in self.hosts:
            await send_error(send, 400, "Invalid host header: this server does not have that name (see --allow-host)")
            return
        length = headers.get(b"content-length", b"0")
        max_body = self.max_body(scope["path"])
        if length.isdigit() and int(length[:19]) > max_body:
            await send_error(send, 413, _too_large(max_body))
            return
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
        elif self.readiness.is_draining:
            await send_error(send, 503, "The server is stopping", RETRY)
        elif headers.get(b"sec-fetch-site") == b"cross-site" and not self.cors:  # a page of another site sent it
            await send_error(send, 403, "Pages of other sites may not use this server (see --cors)")
        else:
            await _LimitedRequest(self, max_body, receive).run(scope, send)


def _too_large(max_body: int) -> str:
    return f"Invalid request: the body exceeds {max_body:,} bytes"


@final
class _LimitedRequest:
    """One request: counts its body as it arrives, then watches whether the client leaves."""

    def __init__(self, limits: LimitsMiddleware, max_body: int, receive: Receive) -> None:
        self.limits, self.max_body, self.receive = limits, max_body, receive
        self.size, self.has_left = 0, False
        self.watcher: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self.deadline = loop.time() + limits.timeout

    async def run(self, scope: Scope, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.limits.readiness.num_requests += 1
        try:
            await self.limits.app(scope, self.next, send)
        except asyncio.CancelledError:
            if not self.has_left:
                raise
            task.uncancel()
        finally:
            self.limits.readiness.num_requests -= 1
            self.limits.readiness.body_bytes -= self.size
            if self.watcher is not None:
                self.watcher.cancel()

    async def next(self) -> Message:
        """Return the next part of the body to the app."""
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
        self.limits.readiness.body_bytes += part
        if self.size > self.max_body:
            raise Refusal(413, _too_large(self.max_body))
        if self.limits.readiness.body_bytes > MAX_BYTES:
            raise Refusal(429, "Slowdown: too many bodies at once", {"Retry-After": str(RETRY)})
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.watcher = asyncio.ensure_future(self.watch())
        return message

    async def watch(self) -> None:
        """Wait until the client leaves, then cancel its work."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.has_left = True
        self.task.cancel()


def _host_name(value: bytes) -> str:
    """Return the name in a Host header, without its port."""
    host = value.decode("latin-1").lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
