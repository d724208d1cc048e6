"""Starts the processes that serve, passes signals on, and replaces one that ends by itself."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, final

from saccade.errors import UserError
from saccade.serving import server
from saccade.serving.http.logs import JsonHandler, log
from saccade.serving.models import ServedRun
from saccade.serving.processes.connections import ANSWERED, ASKED, FREE, WAITS, Inbox, Outbox
from saccade.serving.processes.metrics import SharedMetrics, TeamCounts
from saccade.serving.settings import ProcessOfSeveral, Settings
from saccade.training.checkpoints import map_weights

if TYPE_CHECKING:  # Windows has none
    from multiprocessing.context import ForkServerContext, ForkServerProcess

Load = Callable[[], list[ServedRun]]
PATIENCE = 0.5  # seconds from one look at the processes to the next
LONGEST_PAUSE = 5.0  # seconds before a process is started again that could not start
MOST_FAILURES = 5  # in a row, without any process that serves
OWN = "first"
ACCEPTED_AT_ONCE = 64
LINGER = 1.0  # seconds in which a client may read why it gets no answer
SETTLED = 1.0  # seconds from one look at the run folders to the next, and at who has too many connections
UNEVEN = 8  # connections more than twice as many as another process has
UNREAD = (".jsonl", ".html")  # files of a run that no server reads: its log, its report
_BODY = b'{"error": "The process that answered this request has ended; ask again"}'
LOST = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_BODY), _BODY)
)


def run(load: Load, settings: Settings, number: int, watched: Sequence[Path] = ()) -> None:
    """Serve with so many processes until a signal stops them; mistakes of the first one are told before the others.

    When a file of the run folders that are `watched` changes, other processes take over, one after the other.
    """
    context = _find_context()
    logging.getLogger().addHandler(JsonHandler(logging.WARNING))
    most = server.count_connections(number * settings.max_connections)
    with tempfile.TemporaryDirectory(prefix="saccade-") as folder, server.listen(settings) as listening:
        _Team(load, settings, context, listening, Path(folder), RunFiles(watched), most).run(number)
    log("stopped")


def _find_context() -> ForkServerContext:
    """Return what begins processes: forks of one that has loaded the libraries, but computed nothing."""
    try:
        context = multiprocessing.get_context("forkserver")
    except ValueError:
        raise UserError("--processes and --reload need Linux or macOS: processes here can't fork") from None
    context.set_forkserver_preload(["saccade.serving.server"])
    return context


@final
class RunFiles:
    """The files of run folders, and how often they have changed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders, self.version = folders, 0
        self._known = self._seen = self._list()
        self._look_at = 0.0

    def have_changed(self) -> bool:
        """Return whether files are others than before, and have been so for a while."""
        if not self.folders or (now := time.monotonic()) < self._look_at:
            return False
        self._look_at = now + SETTLED
        before, self._seen = self._seen, self._list()
        if self._seen == self._known or self._seen != before:
            return False
        self._known = self._seen
        self.version += 1
        return True

    def _list(self) -> list[tuple[str, int, int, int]]:
        files = (file for folder in self.folders for file in folder.glob("[!.]*") if not file.name.endswith(UNREAD))
        try:
            read = [(str(file), file.stat()) for file in files if file.is_file()]
        except OSError:  # one is just being removed
            return []
        return sorted((path, found.st_ino, found.st_size, found.st_mtime_ns) for path, found in read)


@final
class _Member:
    """A process: the connection on which it says that it serves, and which ends it when it is closed here."""

    def __init__(self, place: int, version: int, process: ForkServerProcess, said: Connection, outbox: Outbox) -> None:
        self.place, self.version, self.process, self.connection, self.outbox = place, version, process, said, outbox
        self.serves = self.is_retiring = False

    def hear(self) -> str | None:
        """Note that it serves; return the user's mistake that keeps it from that."""
        with contextlib.suppress(EOFError, OSError):
            while self.connection.poll():
                mistake: str = self.connection.recv()
                if mistake:
                    return mistake
                self.serves = True
        return None


@final
class _Team:
    """The processes that serve. Each has a place; while a run is loaded anew, two may have the same."""

    def __init__(
        self,
        load: Load,
        settings: Settings,
        context: ForkServerContext,
        listening: socket.socket,
        folder: Path,
        runs: RunFiles,
        most: int,
    ) -> None:
        self.load, self.settings, self.listening, self.runs, self.most = load, settings, listening, runs, most
        self.context, self.folder, self.metrics = context, folder, SharedMetrics(folder)
        self.members = list[_Member]()
        self.counts = TeamCounts()
        self.num_begun = self.num_failures = 0
        self.signals: list[int] = []
        self.waiting = deque[socket.socket]()  # connections that no process has taken
        self.leaving = deque[tuple[float, socket.socket]]()  # connections that were answered here, and when they close
        self._again_at, self._share_at, self._told = 0.0, 0.0, b""

    def run(self, number: int) -> None:
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(sign) != signal.SIG_IGN:
                signal.signal(sign, self._stop)
        self.listening.setblocking(False)
        self._begin(0)
        while not self.signals and self.members and not self.members[0].serves:
            self._look(number=1)
        while self.members or not self.signals:
            self._look(number)

    def _stop(self, sign: int, frame: FrameType | None) -> None:
        """Pass a signal on: the first one drains the processes, the second ends them at once."""
        del frame
        self.signals.append(sign)
        for member in list(self.members):
            if member.process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member.process.pid, sign if member.serves else signal.SIGKILL)

    def _look(self, number: int) -> None:
        """Wait until something happens, and see to it that `number` processes serve."""
        self._wait()
        for member in list(self.members):
            self._hear(member)
            if not member.process.is_alive():
                self._bury(member)
        if not self.signals and time.monotonic() >= self._again_at:
            self._begin_missing(number)
            if self.runs.have_changed():
                log("reloading")
                self.counts.reloads += 1
        self._retire_old()
        self._share_out()
        self._accept()
        while self.leaving and self.leaving[0][0] < time.monotonic():
            self.leaving.popleft()[1].close()
        self._tell(self.counts.describe(sum(one.serves for one in self.members)))

    def _tell(self, text: bytes) -> None:
        if text != self._told:
            self.metrics.write(OWN, text)
            self._told = text

    def _wait(self) -> None:
        watched: list[Any] = [member.process.sentinel for member in self.members]
        watched += [one.outbox.channel for one in self.members]
        watched += [one.connection for one in self.members if not one.serves]
        wait([*watched, self.listening] if self._has_room() else watched, PATIENCE)

    def _has_room(self) -> bool:
        """Return whether a new connection can be accepted and answered."""
        is_full = sum(len(one.outbox.held) for one in self.members) >= self.most
        return bool(self._able()) and not self.waiting and not is_full

    def _hear(self, member: _Member) -> None:
        has_served, mistake = member.serves, member.hear()
        if member.serves and not has_served:
            self.num_failures = 0
        if mistake is not None:
            if not self.counts.lost and not any(one.serves for one in self.members):
                self._end_all()
                raise UserError(mistake)
            log("failure", process=member.place, error=mistake)
        for connection in member.outbox.hear():
            self._hand(connection)

    def _begin_missing(self, number: int) -> None:
        """Begin the processes that are missing; of those that only replace others, one at a time."""
        now = [one for one in self.members if one.version == self.runs.version and not one.is_retiring]
        for place in range(number):
            is_replaced = any(one.place == place and one.serves for one in self.members)
            if all(one.place != place for one in now) and not (is_replaced and any(not one.serves for one in now)):
                self._begin(place)
                if is_replaced:
                    return

    def _begin(self, place: int) -> None:
        ours, theirs = self.context.Pipe()
        self.num_begun += 1
        outbox = Outbox(self.folder / f"connections-{self.num_begun}")
        own = replace(self.settings, process=ProcessOfSeveral(place, self.folder))
        arguments = (self.load, own, self.listening.getsockname()[:2], outbox.theirs, outbox.path, theirs)
        process = self.context.Process(target=_serve, args=arguments, name=f"saccade-{place}")
        process.start()
        theirs.close()
        outbox.theirs.close()
        self.members.append(_Member(place, self.runs.version, process, ours, outbox))

    def _retire_old(self) -> None:
        """Have those end whose place another one has taken, with the runs as they are now."""
        for old in self.members:
            if not old.is_retiring and any(
                one.place == old.place and one.serves and one.version > old.version for one in self.members
            ):
                old.is_retiring = old.outbox.retire()

    def _share_out(self) -> None:
        """Have the process with most connections give some to the one with fewest, which has just begun, say."""
        if (now := time.monotonic()) < self._share_at or not (able := self._able()):
            return
        self._share_at = now + SETTLED
        fewest, most = len(able[0].outbox.held), len(able[-1].outbox.held)
        if most > 2 * fewest + UNEVEN:
            able[-1].outbox.share((most - fewest) // 2)

    def _able(self) -> list[_Member]:
        """Return the processes that take connections, the one with the fewest first."""
        able = [one for one in self.members if one.serves and not one.is_retiring]
        return sorted(able, key=lambda one: len(one.outbox.held))

    def _accept(self) -> None:
        """Hand new connections to processes; those that nobody takes now wait, and new ones with them."""
        for _ in range(len(self.waiting)):
            self._hand(self.waiting.popleft())
        for _ in range(ACCEPTED_AT_ONCE):
            if not self._has_room():
                return
            try:
                connection, _ = self.listening.accept()
            except OSError:  # there is none
                return
            self._hand(connection)

    def _hand(self, connection: socket.socket) -> None:
        if not any(member.outbox.hand(connection) for member in self._able()):
            self.waiting.append(connection)

    def _bury(self, member: _Member) -> None:
        """Keep the counters of a process that has ended, and look after its connections."""
        self.members.remove(member)
        member.process.join()
        for connection in member.outbox.hear():
            self._hand(connection)
        left = member.outbox.close()
        member.connection.close()
        for path in self.folder.glob(f"process{member.place}-{member.process.pid}.live"):
            self.metrics.retire(path.stem)
        is_lost = not self.signals and not (member.is_retiring and not member.process.exitcode)
        for connection, state in left:
            self._look_after(connection, state if is_lost else FREE)
        if not is_lost:
            return
        self.counts.lost += 1
        log("lost", process=member.place, code=member.process.exitcode)
        if not member.serves:
            self.num_failures += 1
            self._again_at = time.monotonic() + min(LONGEST_PAUSE, 0.1 * 2**self.num_failures)
        if not self.members and self.num_failures >= MOST_FAILURES:
            log("failure", error="no process can start")
            raise SystemExit(1)

    def _look_after(self, connection: socket.socket, state: int) -> None:
        """Hand on a connection that waits for its client; answer one that has asked, and cut one in an answer."""
        if state == WAITS:
            self._hand(connection)
            return
        if state == ASKED:
            self.counts.answered += 1
            with contextlib.suppress(OSError):
                connection.setblocking(False)
                connection.send(LOST)
                connection.shutdown(socket.SHUT_WR)
            self.leaving.append((time.monotonic() + LINGER, connection))  # what still comes would reset it
            return
        self.counts.cut += state == ANSWERED
        connection.close()

    def _end_all(self) -> None:
        for member in self.members:
            member.process.kill()
            member.process.join()


def _serve(
    load: Load, settings: Settings, address: tuple[str, int], channel: socket.socket, states: Path, said: Connection
) -> None:
    """Serve as one of several; a mistake of the user is told to the process that began this one."""
    os.setsid()  # Ctrl-C in a terminal is for the first process, which passes it on
    logging.getLogger().addHandler(JsonHandler(logging.WARNING))
    with contextlib.ExitStack() as stack:
        try:
            with map_weights():
                runs = load()
            one = server.prepare(runs, settings, stack.enter_context(server.fork_workers(runs)))
        except UserError as mistake:
            said.send(str(mistake))
            raise SystemExit(2) from None
        threading.Thread(target=_end_with, args=(said,), daemon=True).start()
        one.inbox, one.address = Inbox(channel, states), address
        one.on_listening = lambda: said.send("")
        one.run([])
        server.end_process()


def _end_with(said: Connection) -> None:
    """Stop when the first process is gone."""
    with contextlib.suppress(EOFError, OSError):
        said.recv()
    os.kill(os.getpid(), signal.SIGTERM)
