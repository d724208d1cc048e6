"""Checks before every route: who asks, with which key, how often; and the headers of every response."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import final

from starlette.datastructures import Headers

from saccade.data.text.corpus import read_lines
from saccade.errors import UserError
from saccade.serving.http.callers import RateLimit, caller_name, identify
from saccade.serving.http.lifetimes import (
    App,
    OpenRequest,
    Readiness,
    Receive,
    Scope,
    Send,
    make_stopping_refusal,
    send_refusal,
    too_large,
)
from saccade.serving.http.origins import AllowedSites
from saccade.serving.http.protocol import MAX_HEAD
from saccade.serving.http.responses import Refusal

MaxBody = Callable[[str], int]  # of a path: the most bytes of a body

HEADERS = [
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     b"img-src 'self' data: blob:; media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]  # fmt: skip
MIN_KEY_LENGTH = 8


@final
class Keys:
    """API keys, compared in constant time; without any, every request is allowed. `rates` limits how often one asks."""

    def __init__(self, keys: Iterable[str] = (), rates: RateLimit | None = None) -> None:
        self._digests, self._rates = [_digest(key) for key in keys], rates

    @property
    def are_required(self) -> bool:
        return bool(self._digests)

    def check(self, given: object) -> None:
        """Refuse a missing key (400) and a wrong one (403), as LibreTranslate does."""
        self._check(given, Refusal(400, "Please contact the server operator to get an API key", reason="key"))

    def check_header(self, headers: Mapping[str, str], *, is_work: bool = True) -> None:
        """Refuse a missing key (401) and a wrong one (403), as HTTP has it."""
        missing = "an API key is missing: send Authorization: Bearer, then the key, or X-API-Key"
        self._check(key_of(headers), Refusal(401, missing, {"WWW-Authenticate": "Bearer"}, reason="key"), is_work)

    def _check(self, given: object, missing: Refusal, is_work: bool = True) -> None:
        if not self._digests:
            return
        digest = _digest(given) if isinstance(given, str) else b""
        matches = [
            hmac.compare_digest(digest, known) for known in self._digests
        ]  # compare all: the time must not tell which one is right
        if any(matches):
            identify(1 + matches.index(True))
        is_counted = is_work or not any(matches)  # who guesses keys is counted by address, wherever
        if self._rates is not None and is_counted and (client := caller_name()) is not None:
            self._rates.charge(client)
        if not any(matches):
            raise Refusal(403, "Invalid API key", reason="key") if given and isinstance(given, str) else missing


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
class LimitsMiddleware:
    """Refuses who may not ask, or not so often, and whatever is too large; passes on what has work to do.

    Routes `with_keys` take the key from a header, so that nothing of a body is read without one.
    """

    def __init__(
        self,
        app: App,
        readiness: Readiness,
        *,
        sites: AllowedSites,
        keys: Keys,
        with_keys: frozenset[str],
        max_body: MaxBody,
        max_values: int,
        timeout: float,
        rates: RateLimit | None = None,
    ) -> None:
        self.app, self.readiness, self.rates = app, readiness, rates
        self.sites, self.keys, self.with_keys = sites, keys, with_keys
        self.max_body, self.max_values, self.timeout = max_body, max_values, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope["path"] = scope["path"].rstrip("/") or "/"  # /translate/ too; a redirect would name another scheme
        client = scope["client"][0] if scope["client"] else ""
        max_body = self.max_body(scope["path"])
        try:
            self._check(scope, client, max_body)
        except Refusal as refusal:
            await send_refusal(scope, send, refusal)
            return
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        request = OpenRequest(
            self.app,
            self.readiness,
            client=client,
            max_body=max_body,
            max_values=math.inf if _is_multipart(scope) else self.max_values,
            timeout=self.timeout,
        )
        await request.run(scope, receive, send)

    def _check(self, scope: Scope, client: str, max_body: int) -> None:
        """Refuse a request by its head."""
        if (refused := self.sites.refuses(scope)) is not None:
            raise Refusal(refused.status, refused.message, reason="site")
        if _head_size(scope) > MAX_HEAD:  # it came in one piece
            raise Refusal(431, f"Invalid request: the head exceeds {MAX_HEAD:,} bytes", reason="head size")
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length[:19]) > max_body:
            raise too_large(max_body)
        if scope["method"] == "POST" and self.readiness.is_refusing:
            raise make_stopping_refusal()
        if scope["method"] == "POST" and self.rates is not None:
            self.rates.charge(client)
        if scope["path"] in self.with_keys:
            self.keys.check_header(Headers(scope=scope), is_work=scope["method"] == "POST")


def _is_multipart(scope: Scope) -> bool:
    """Tell whether the body may be a file, whose commas separate nothing."""
    return dict(scope["headers"]).get(b"content-type", b"").lower().startswith(b"multipart/")


def _head_size(scope: Scope) -> int:
    fields = sum(len(name) + len(value) + 4 for name, value in scope["headers"])  # with ": " and the end of the line
    return fields + len(scope["raw_path"]) + len(scope["query_string"])
