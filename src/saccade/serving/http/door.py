"""The door of a server: connections are accepted as they come, and opened when it is the turn of their address."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import final

from saccade.serving.http.responses import encode_json
from saccade.serving.http.turns import Begin, Turns
from saccade.serving.shares import FairShare

ACCEPTED_AT_ONCE = 64
OPENING_SECONDS = 0.001  # of the event loop, for a connection that is opened, refused and closed
OPENINGS_AT_ONCE = 100  # of an address
FULL_SECONDS = 0.1  # to wait when the system has no room for another connection
NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_BODY = encode_json({"error": "Slowdown: too many connections"})
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_BODY), _BODY)
)


@final
class Door:
    """The connections that are to be opened: a line for each address, which rests as `Turns` says.

    Who is closed because it has too many connections, or is late, opens them again at once. So those of an address wait
    here, as sockets that nobody has looked at. While others ask, one that finds its line full is refused with a few
    bytes.
    """

    def __init__(self, turns: Turns, most_in_line: int, on_close: Callable[[str], None] = lambda reason: None) -> None:
        self._turns, self._in_line, self._on_close = turns, FairShare(most_in_line), on_close
        self._listening: Sequence[socket.socket] = ()
        self._waiting = set[socket.socket]()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def listen(self, sockets: Sequence[socket.socket], begin: Callable[[socket.socket], None]) -> None:
        """Accept what comes at these sockets; `begin` is called with each connection when it is its turn."""
        self._listening, self._begin = sockets, begin
        for listening in sockets:
            listening.setblocking(False)
            self._watch(listening)

    def close(self) -> None:
        """Accept what has come until now, and nothing more."""
        for listening in self._listening:
            asyncio.get_running_loop().remove_reader(listening)
            while self._accept(listening):
                pass
        self._listening = ()

    def take(self, connection: socket.socket, begin: Begin, refused: Begin = lambda: None) -> None:
        """Open a connection when it is the turn of its address; refuse it if too many of that address wait."""
        try:
            address = connection.getpeername()[0]
        except OSError:  # it has been reset
            address = ""
        self._turns.charge(address, OPENING_SECONDS)
        if not self._in_line.allows(address, 1):
            if not self._turns.has_others(address):
                begin()
                return
            self._refuse(connection)
            refused()
            return
        self._in_line.take(address, 1)
        self._waiting.add(connection)
        self._turns.take(address, partial(self._open, address, connection, begin))

    def drop(self) -> None:
        """Close the connections that still wait."""
        for connection in self._waiting:
            connection.close()
        self._waiting.clear()

    def _open(self, address: str, connection: socket.socket, begin: Begin) -> None:
        self._in_line.give_back(address, 1)
        if connection in self._waiting:
            self._waiting.remove(connection)
            begin()

    def _refuse(self, connection: socket.socket) -> None:
        self._on_close("connections")
        with contextlib.suppress(OSError):
            connection.send(REFUSAL)
        connection.close()

    def _watch(self, listening: socket.socket) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> bool:
        """Accept some of the connections that wait; return whether there may be more."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _ = listening.accept()
            except OSError as error:
                if error.errno in NO_ROOM:
                    loop = asyncio.get_running_loop()
                    loop.remove_reader(listening)
                    loop.call_later(FULL_SECONDS, self._watch, listening)
                return False
            connection.setblocking(False)
            self.take(connection, partial(self._begin, connection))
        return True
