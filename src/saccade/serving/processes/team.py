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
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import FrameType
from typing import final

from saccade.errors import UserError
from saccade.serving import server
from saccade.serving.http.logs import JsonHandler, log
from saccade.serving.models import ServedRun
from saccade.serving.processes.metrics import SharedMetrics, describe_processes
from saccade.serving.settings import ProcessOfSeveral, Settings

Load = Callable[[], list[ServedRun]]
CONTEXT = multiprocessing.get_context("forkserver")  # which has loaded the libraries, but computed nothing
PATIENCE = 0.5  # seconds from one look at the processes to the next
LONGEST_PAUSE = 5.0  # seconds before a process is started again that could not start
MOST_FAILURES = 5  # in a row, without any process that serves
OWN = "first"


def run(load: Load, settings: Settings, number: int) -> None:
    """Serve with so many processes until a signal stops them; mistakes of the first one are told before the others."""
    logging.getLogger().addHandler(JsonHandler(logging.WARNING))
    CONTEXT.set_forkserver_preload(["saccade.serving.server"])
    with tempfile.TemporaryDirectory(prefix="saccade-") as folder, server.listen(settings) as listening:
        _Team(load, settings, listening, Path(folder)).run(number)
    log("stopped")


@final
class _Member:
    """A process, and the connection on which it says that it serves; it ends when that is closed here."""

    def __init__(self, process: ForkServerProcess, connection: Connection) -> None:
        self.process, self.connection = process, connection
        self.serves = False

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
    """The processes that serve, by their numbers."""

    def __init__(self, load: Load, settings: Settings, listening: socket.socket, folder: Path) -> None:
        self.load, self.settings, self.listening = load, settings, listening
        self.folder, self.metrics = folder, SharedMetrics(folder)
        self.members = dict[int, _Member]()
        self.num_lost = self.num_failures = 0
        self.signals: list[int] = []
        self._again_at = 0.0

    def run(self, number: int) -> None:
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(sign) != signal.SIG_IGN:
                signal.signal(sign, self._stop)
        self._begin(0)
        while not self.signals and self.members and not self.members[0].serves:
            self._look(number=1)
        while self.members or not self.signals:
            self._look(number)

    def _stop(self, sign: int, frame: FrameType | None) -> None:
        """Pass a signal on: the first one drains the processes, the second ends them at once."""
        del frame
        self.signals.append(sign)
        for member in list(self.members.values()):
            if member.process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member.process.pid, sign if member.serves else signal.SIGKILL)

    def _look(self, number: int) -> None:
        """Wait until something happens, and see to it that `number` processes serve."""
        watched: list[Connection | int] = [member.process.sentinel for member in self.members.values()]
        wait([*watched, *(one.connection for one in self.members.values() if not one.serves)], PATIENCE)
        for place, member in list(self.members.items()):
            mistake = member.hear()
            if member.serves:
                self.num_failures = 0
            if mistake is not None:
                if not self.num_lost and not any(one.serves for one in self.members.values()):
                    self._end_all()
                    raise UserError(mistake)
                log("failure", process=place, error=mistake)
            if not member.process.is_alive():
                self._bury(place)
        if not self.signals and time.monotonic() >= self._again_at:
            for place in range(number):
                if place not in self.members:
                    self._begin(place)
        self.metrics.write(OWN, describe_processes(sum(one.serves for one in self.members.values()), self.num_lost))

    def _begin(self, place: int) -> None:
        ours, theirs = CONTEXT.Pipe()
        one = ProcessOfSeveral(place, self.folder)
        arguments = (self.load, replace(self.settings, process=one), self.listening, theirs)
        process = CONTEXT.Process(target=_serve, args=arguments, name=f"saccade-{place}")
        process.start()
        theirs.close()
        self.members[place] = _Member(process, ours)

    def _bury(self, place: int) -> None:
        """Keep the counters of a process that has ended; one that nobody stopped is replaced, after a pause."""
        member = self.members.pop(place)
        member.process.join()
        member.connection.close()
        for path in self.folder.glob(f"process{place}-*.live"):
            self.metrics.retire(path.stem)
        if self.signals:
            return
        self.num_lost += 1
        log("lost", process=place, code=member.process.exitcode)
        if not member.serves:
            self.num_failures += 1
            self._again_at = time.monotonic() + min(LONGEST_PAUSE, 0.1 * 2**self.num_failures)
        if not self.members and self.num_failures >= MOST_FAILURES:
            log("failure", error="no process can start")
            raise SystemExit(1)

    def _end_all(self) -> None:
        for member in self.members.values():
            member.process.kill()
            member.process.join()


def _serve(load: Load, settings: Settings, listening: socket.socket, said: Connection) -> None:
    """Serve as one of several; a mistake of the user is told to the process that began this one."""
    os.setsid()  # Ctrl-C in a terminal is for the first process, which passes it on
    logging.getLogger().addHandler(JsonHandler(logging.WARNING))
    try:
        one = server.prepare(load(), settings)
    except UserError as mistake:
        said.send(str(mistake))
        raise SystemExit(2) from None
    threading.Thread(target=_end_with, args=(said,), daemon=True).start()
    one.on_listening = lambda: said.send("")
    one.run([listening])
    server.end_process()


def _end_with(said: Connection) -> None:
    """Stop when the first process is gone."""
    with contextlib.suppress(EOFError, OSError):
        said.recv()
    os.kill(os.getpid(), signal.SIGTERM)
