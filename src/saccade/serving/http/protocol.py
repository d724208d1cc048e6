"""Uvicorn's HTTP protocol, with limits on the size of a request's head and on the time until it is complete."""

from __future__ import annotations

import asyncio
from typing import Any, final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 1 << 16  # bytes of request line and headers
MAX_HEAD_SECONDS = 15.0  # from the connection, or from a request's first byte


@final
class Protocol(HttpToolsProtocol):
    """One connection. It limits the heads of requests; the application limits their bodies."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_size = 0
        self._is_head = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Close the connection if a head is too long."""
        self._head_size += len(data) if self._is_head else 0
        super().data_received(data)
        if self._is_head and self._head_size > MAX_HEAD:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def _begin_head(self) -> None:
        self._end_head()
        self._is_head = True
        self._timer = self.loop.call_later(MAX_HEAD_SECONDS, self.transport.close)

    def _end_head(self) -> None:
        self._is_head, self._head_size = False, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
