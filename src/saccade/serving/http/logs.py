"""Logs on standard error, one JSON object a line: routes, statuses and times, never the content of requests."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any, final

from saccade.serving.http.lifetimes import App, Message, Readiness, Receive, Scope, Send
from saccade.serving.http.metrics import Metrics
from saccade.serving.http.security import HEADERS

GONE = 499  # the client left before the response
CLOSE = (b"connection", b"close")


def log(event: str, **fields: Any) -> None:
    """Write an event and its fields as one line."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError):  # the terminal is gone
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
        self._numbers: Iterator[int] = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), GONE

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), *HEADERS]
                is_last = self.readiness.is_draining and CLOSE not in headers
                message["headers"] = [*headers, CLOSE] if is_last else headers
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:  # the client already has its 500
            log("failure", error=type(error).__name__, where=_locations(error))
        self._count(scope, status, time.perf_counter() - started)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(route, status).inc()
        self.metrics.latency.labels(route).observe(seconds)
        refusal = scope.get("refusal")
        if refusal is not None:
            self.metrics.refusals.labels(refusal).inc()
        if not self.quiet or status >= 500:
            number, milliseconds = next(self._numbers), round(1000 * seconds, 1)
            why = {} if refusal is None else {"refusal": refusal}
            log("request", number=number, method=scope["method"], route=route, status=status, ms=milliseconds, **why)


def _locations(error: Exception) -> list[str]:
    """Return file and line of each call, without values."""
    return [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-8:]]
