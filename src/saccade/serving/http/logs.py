"""Logs on standard error, one JSON object a line: routes, statuses and times, never the content of requests."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
import sys
import time
import traceback
from typing import Any, final

from saccade.serving.http.callers import Caller, begin_call
from saccade.serving.http.lifetimes import App, Message, Readiness, Receive, Scope, Send
from saccade.serving.http.metrics import Metrics
from saccade.serving.http.security import HEADERS

GONE = 499  # the client left before the response
CLOSE = (b"connection", b"close")
REQUEST_ID = b"x-request-id"
ID = re.compile(r"[\w.:/+=@-]{1,128}", re.ASCII)


def log(event: str, **fields: Any) -> None:
    """Write an event and its fields as one line."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError, RuntimeError):  # the terminal is gone; or a signal came within a write
        sys.stderr.write(json.dumps({"time": now, "event": event, **fields}) + "\n")


@final
class JsonHandler(logging.Handler):
    """Writes the logs of libraries in the same form, without the values in them."""

    def emit(self, record: logging.LogRecord) -> None:
        said = str(record.msg).partition("\n")[0]
        log("library", name=record.name, level=record.levelname, said=said[:200])


@final
class AccessLogMiddleware:
    """Adds security headers to every response, and closes connections while draining; counts and logs every request."""

    def __init__(self, app: App, metrics: Metrics, readiness: Readiness, *, quiet: bool = False) -> None:
        self.app, self.metrics, self.readiness, self.quiet = app, metrics, readiness, quiet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, name = time.perf_counter(), GONE, _name_request(scope)
        caller = begin_call(scope["client"][0] if scope["client"] else "")

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), *HEADERS, (REQUEST_ID, name.encode())]
                is_last = self.readiness.is_draining and CLOSE not in headers
                message["headers"] = [*headers, CLOSE] if is_last else headers
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:  # the client already has its 500
            log("failure", id=name, error=type(error).__name__, where=_locations(error))
        seconds = time.perf_counter() - started
        self._count(scope, status, seconds)
        if not self.quiet or status >= 500:
            _log_request(scope, caller, id=name, status=status, ms=round(1000 * seconds, 1))

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(route, status).inc()
        self.metrics.latency.labels(route).observe(seconds)
        refusal = scope.get("refusal")
        if refusal is not None:
            self.metrics.refusals.labels(refusal).inc()


def _log_request(scope: Scope, caller: Caller, **fields: Any) -> None:
    route = getattr(scope.get("route"), "path", "other")
    work = {} if caller.model is None else {"model": caller.model, "characters": caller.num_characters}
    known = {"key": caller.key, "refusal": scope.get("refusal")}
    rest = {name: value for name, value in known.items() if value is not None}
    log("request", method=scope["method"], route=route, **fields, **work, **rest)


def _name_request(scope: Scope) -> str:
    """Return the name that a client or a proxy gave a request, or a new one."""
    given = dict(scope["headers"]).get(REQUEST_ID, b"").decode("latin-1")
    return given if ID.fullmatch(given) else secrets.token_hex(8)


def _locations(error: Exception) -> list[str]:
    """Return file and line of each call, without values."""
    return [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-8:]]
