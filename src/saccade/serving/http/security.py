"""Checks before every route: who asks, API keys, the size and time of bodies; and the headers of every response."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from saccade.data.text.corpus import read_lines
from saccade.errors import UserError
from saccade.serving.http.origins import AllowedSites
from saccade.serving.http.protocol import MAX_HEAD
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
        self._check(given, Refusal(400, "Please contact the server operator to get an API key"))

    def check_header(self, headers: Mapping[str, str]) -> None:
        """Refuse a missing key (401) and a wrong one (403), as HTTP has it."""
        missing = "an API key is missing: send Authorization: Bearer, then the key, or X-API-Key"
        self._check(key_of(headers), Refusal(401, missing, {"WWW-Authenticate": "Bearer"}))

    def _check(self, given: object, missing: Refusal) -> None:
        if not self._digests:
            return
        if not isinstance(given, str) or not given:
            raise missing
        digest = _digest(given)
        matches = [
            hmac.compare_digest(digest, known) for known in self._digests
        ]  # compare all: the time must not tell which one is right
        if not any(matches):
            raise Refusal(403, "Invalid API key")


def key_of(headers: Mapping[str, str]) -> str | None:
    """Return the key in X-API-Key or Authorization."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key") or (token.strip() if kind.lower() == "bearer" else None)


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
    """Refuses who may not ask, and bodies that are too large or too slow; cancels the work of clients that left."""

    def __init__(
        self,
        app: App,
        readiness: Readiness,
        *,
        sites: AllowedSites,
        max_body: MaxBody,
        timeout: float,
    ) -> None:
        self.app, self.readiness = app, readiness
        self.sites, self.max_body, self.timeout = sites, max_body, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if (refused := self.sites.refuses(scope)) is not None:
            await send_error(send, refused.status, refused.message)
            return
        if _head_size(scope) > MAX_HEAD:  # it came in one piece
            await send_error(send, 431, f"Invalid request: the head exceeds {MAX_HEAD:,} bytes")
            return
        scope["path"] = scope["path"].rstrip("/") or "/"  # /translate/ too; a redirect would name another scheme
        length = dict(scope["headers"]).get(b"content-length", b"0")
        max_body = self.max_body(scope["path"])
        if length.isdigit() and int(length[:19]) > max_body:
            await send_error(send, 413, _too_large(max_body))
            return
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
        elif self.readiness.is_draining:
            await send_error(send, 503, "The server is stopping", RETRY)
        else:
            await _LimitedRequest(self, max_body, receive).run(scope, send)


def _head_size(scope: Scope) -> int:
    fields = sum(len(name) + len(value) + 4 for name, value in scope["headers"])  # with ": " and the end of the line
    return fields + len(scope["raw_path"]) + len(scope["query_string"])


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
