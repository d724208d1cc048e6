"""Connections of several processes. The first one accepts them, and keeps a handle of each that outlives who answers.

A process says in memory that both map what becomes of a connection. So when it is killed, the first one knows which
connections wait for their clients, and hands them to another; which have asked, and answers these; and which are cut.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, final

FREE, WAITS, ASKED, ANSWERED = range(4)  # nothing; for its client; for us; a part of the answer is sent
SLOTS = 1 << 16  # connections of one process
TAKE, RETIRE, SHARE, CLOSED, GIVEN_BACK = b"t", b"r", b"s", b"c", b"g"  # what processes tell each other
MESSAGE = struct.Struct("!cI")


def open_states(path: Path, *, create: bool = False) -> mmap.mmap:
    """Map the states of a process's connections."""
    with path.open("w+b" if create else "r+b") as file:
        if create:
            file.truncate(SLOTS)
        return mmap.mmap(file.fileno(), SLOTS)


class LeftConnection(NamedTuple):
    """A connection that a process left, and in which state."""

    connection: socket.socket
    state: int


@final
class Outbox:
    """The connections that one process answers, as the first one knows them."""

    def __init__(self, path: Path) -> None:
        self.path, self.states = path, open_states(path, create=True)
        self.channel, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.channel.setblocking(False)
        self.held = dict[int, socket.socket]()
        self._free, self._next = deque[int](), 0

    def hand(self, connection: socket.socket) -> bool:
        """Have the process answer a connection; return whether it takes it."""
        slot = self._free[0] if self._free else self._next
        if slot == SLOTS:
            return False
        self.states[slot] = WAITS
        try:
            socket.send_fds(self.channel, [MESSAGE.pack(TAKE, slot)], [connection.fileno()])
        except OSError:  # it reads none just now, or has ended
            self.states[slot] = FREE
            return False
        if self._free:
            self._free.popleft()
        else:
            self._next += 1
        self.held[slot] = connection
        return True

    def retire(self) -> bool:
        """Tell the process to give back what waits and to end; return whether it was told."""
        return self._tell(RETIRE, 0)

    def share(self, number: int) -> bool:
        """Tell the process to give back so many connections, each when it waits; return whether it was told."""
        return self._tell(SHARE, number)

    def _tell(self, kind: bytes, number: int) -> bool:
        try:
            self.channel.send(MESSAGE.pack(kind, number))
        except OSError:
            return False
        return True

    def hear(self) -> list[socket.socket]:
        """Forget what was closed, and return what was given back."""
        found = list[socket.socket]()
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while message := self.channel.recv(MESSAGE.size):
                kind, slot = MESSAGE.unpack(message)
                connection = self.held.pop(slot)
                self._free.append(slot)
                if kind == GIVEN_BACK:
                    self.states[slot] = FREE
                    found.append(connection)
                else:
                    connection.close()
        return found

    def close(self) -> list[LeftConnection]:
        """Return the connections of a process that has ended."""
        found = [LeftConnection(connection, self.states[slot]) for slot, connection in self.held.items()]
        self.held.clear()
        self.channel.close()
        self.states.close()
        self.path.unlink(missing_ok=True)
        return found


@final
class HeldConnection:
    """A connection of which the first process has a handle."""

    def __init__(self, inbox: Inbox, slot: int, connection: socket.socket) -> None:
        self._inbox, self._slot, self._connection = inbox, slot, connection
        self.is_given_back = False

    def say(self, state: int) -> None:
        self._inbox.states[self._slot] = state

    def end(self) -> None:
        """Tell the first process that this one is done with it; its handle would keep the connection open."""
        if not self.is_given_back:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)
            self.say(FREE)
        self._inbox.tell(GIVEN_BACK if self.is_given_back else CLOSED, self._slot)


@final
class Inbox:
    """The connections that this process is handed."""

    def __init__(self, channel: socket.socket, states: Path) -> None:
        self.channel, self.states = channel, open_states(states)
        self.channel.setblocking(False)
        self.is_retiring = False
        self.num_to_share = 0
        self._unsent = deque[bytes]()

    def take(self, begin: Callable[[HeldConnection, socket.socket], None]) -> None:
        """Begin with the connections that have been handed over."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while True:
                message, handles, _, _ = socket.recv_fds(self.channel, MESSAGE.size, 1)
                if not message:
                    return
                kind, slot = MESSAGE.unpack(message)
                if kind == RETIRE:
                    self.is_retiring = True
                    continue
                if kind == SHARE:
                    self.num_to_share = slot
                    continue
                if not handles:  # there are too many open files
                    self.tell(CLOSED, slot)
                    continue
                connection = socket.socket(fileno=handles[0])
                connection.setblocking(False)
                begin(HeldConnection(self, slot, connection), connection)

    def tell(self, kind: bytes, slot: int) -> None:
        self._unsent.append(MESSAGE.pack(kind, slot))
        self.send()

    def send(self) -> None:
        """Send what is to be told, as far as there is room."""
        with contextlib.suppress(OSError):
            while self._unsent:
                self.channel.send(self._unsent[0])
                self._unsent.popleft()
