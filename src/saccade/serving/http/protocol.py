"""HTTP as uvicorn reads it, with a limit on the size of a request's head and on the time it takes."""

from __future__ import annotations

import asyncio
from typing import Any, final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 1 << 16  # bytes of request line and headers
LONGEST_HEAD = 15.0  # seconds from the connection, or from a request's first byte


@final
class Protocol(HttpToolsProtocol):
    """One connection. Bodies are the application's to count; what comes before them is counted here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_size = 0
        self._is_head = True
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there; a head must follow."""
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes; too many of them without the end of a head are no request."""
        self._head_size += len(data) if self._is_head else 0
        super().data_received(data)
        if self._is_head and self._head_size > MOST_HEAD:
            self.transport.close()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._end()
        super().on_headers_complete()

    def _begin(self) -> None:
        self._end()
        self._is_head = True
        self._late = self.loop.call_later(LONGEST_HEAD, self.transport.close)

    def _end(self) -> None:
        self._is_head, self._head_size = False, 0
        if self._late is not None:
            self._late.cancel()
            self._late = None
