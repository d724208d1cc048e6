"""Processes beside the server that compute what is slow: quick answers then wait neither for Python's lock nor a core.

When the models are loaded, and before any thread runs, the server forks a process that shares their memory and computes
nothing. It forks a worker when a slow batch has none: with a lower priority, one thread for torch, and a limit of
memory. What ends a worker ends one batch; the next one gets another.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import mmap
import os
import pickle
import select
import signal
import socket
import struct
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, final

import torch

from saccade.decoding.slices import ComputationEnded, supervise
from saccade.serving.waiting import ModelCall

NICENESS = 10
MEMORY_SHARE = 0.5  # of the machine's memory that a worker may take beside what it shares
IDLE_SECONDS = 30.0  # after which a worker ends
LOOK_SECONDS = 0.05  # from one look at who still waits to the next
KILLED_FIRST = "500"  # where the machine has no memory left
FORKED_ENGINES = ("torch", "native")  # others have threads, which do not come along
SIZE = struct.Struct("!Q")
HIRE, READY, TASK, WANTED = b"h", b"r", b"t", b"w"
INSTEAD = "slow work is computed in slices between quick work from now on"
DIE_WITH_PARENT = 1  # of prctl
STANDARD_ERROR = 2
MAPPED_FROM = 1 << 16  # bytes


class WorkerLost(Exception):
    """A worker has ended before its answer."""


class Watcher(Protocol):
    """The caller that waits for a computation."""

    def find_wanted(self) -> Sequence[bool] | None:
        """Return for each item whether its answer is still wanted; None: all are."""


class WorkerTask(NamedTuple):
    """A call of a model, for a worker."""

    model: str
    call: ModelCall
    items: list[Any]


class WorkerResult(NamedTuple):
    """Answers (those that are bytes as views of them) or an error, and the processor time that they took."""

    answers: list[Any]
    error: Exception | None
    seconds: float


def can_fork(models: Mapping[str, Any]) -> bool:
    """Tell whether a process with these models may be forked and go on computing."""
    engines = {model.engine for model in models.values()}
    return hasattr(os, "pidfd_open") and engines <= set(FORKED_ENGINES) and not torch.cuda.is_initialized()


@final
class Workers:
    """The workers of a server, and the process that forks them; `calls` are the functions that they take."""

    def __init__(self, models: Mapping[str, Any], calls: Collection[Callable[..., Any]]) -> None:
        self._calls = frozenset(calls)
        self._lock = threading.Lock()
        self._idle = deque[Worker]()  # the one that ended last comes last
        self.num_workers, self.is_open = 0, True
        self.on_batch: Callable[[float], object] = lambda seconds: None  # told the processor time of each batch
        self.on_lost: Callable[[], object] = lambda: None
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        gc.collect()
        gc.freeze()  # looking through what is shared would copy it
        if not _fork():
            _fork_workers(theirs, models)
        theirs.close()

    def takes(self, call: ModelCall) -> bool:
        return call.call in self._calls

    def hire(self) -> Worker | None:
        """Return a worker that is free, or a new one; None: there can't be any more."""
        with self._lock:
            while self._idle:
                if (worker := self._idle.pop()).is_waiting():
                    return worker
                self._dismiss(worker)
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    socket.send_fds(self._channel, [HIRE], [theirs.fileno()])
                except OSError:  # no other one can be forked, as threads run now
                    if self.is_open:
                        logging.getLogger(__name__).warning("the process that forks workers has ended: %s", INSTEAD)
                    self.is_open = False
                    ours.close()
                    return None
            self.num_workers += 1
            return Worker(ours)

    def compute(self, worker: Worker, task: WorkerTask, watcher: Watcher) -> list[Any]:
        """Return a worker's answers; raise `ComputationEnded` when nobody waits for them any more."""
        is_free = False
        try:
            done = worker.compute(task, watcher)
            is_free = True
        except (OSError, EOFError):
            self.on_lost()
            raise WorkerLost from None
        finally:
            with self._lock:
                if is_free:
                    self._idle.append(worker)
                else:
                    self._dismiss(worker)
        self.on_batch(done.seconds)
        if done.error is not None:
            raise done.error
        return done.answers

    def answer(self, task: WorkerTask, watcher: Watcher) -> list[Any]:
        """Return the answers of any worker."""
        if (worker := self.hire()) is None:
            raise WorkerLost
        return self.compute(worker, task, watcher)

    def end_idle(self) -> None:
        """End workers that have not been needed for a while; the server calls this once a second."""
        with self._lock:
            while self._idle and time.monotonic() - self._idle[0].since > IDLE_SECONDS:
                self._dismiss(self._idle.popleft())

    def close(self) -> None:
        """End all that wait; those that compute end with the process that forked them."""
        with self._lock:
            self.is_open = False
            self._channel.close()
            while self._idle:
                self._dismiss(self._idle.popleft())

    def _dismiss(self, worker: Worker) -> None:
        worker.end()
        self.num_workers -= 1


@final
class Worker:
    """A connection to a worker, and a handle of its process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._process, self.since = connection, -1, time.monotonic()

    def is_waiting(self) -> bool:
        """Tell whether it waits for something to do."""
        return not select.select([self._connection], [], [], 0)[0]

    def compute(self, task: WorkerTask, watcher: Watcher) -> WorkerResult:
        """Have it compute; raise `ComputationEnded` when nobody waits any more, an error when it has ended."""
        if self._process < 0:
            _, handles, _, _ = socket.recv_fds(self._connection, len(READY), 1)
            if not handles:
                raise EOFError
            (self._process,) = handles
        self._connection.sendall(TASK)
        _send(self._connection, task)
        told = None
        while not select.select([self._connection], [], [], LOOK_SECONDS)[0]:
            wanted = watcher.find_wanted()
            if wanted is not None and not any(wanted):
                raise ComputationEnded
            if wanted is not None and wanted != told:
                self._connection.sendall(WANTED + SIZE.pack(len(wanted)) + bytes(wanted))
                told = wanted
        done: WorkerResult = _receive(self._connection)
        self.since = time.monotonic()
        return done

    def end(self) -> None:
        """End its process, whatever it does."""
        if self._process >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            os.close(self._process)
        self._connection.close()


class ModelWorkers(NamedTuple):
    """The workers of a server, for one of its models."""

    workers: Workers
    model: str

    def hire(self, call: ModelCall) -> Worker | None:
        return self.workers.hire() if self.workers.takes(call) else None

    def compute(self, worker: Worker, call: ModelCall, items: list[Any], watcher: Watcher) -> list[Any]:
        return self.workers.compute(worker, WorkerTask(self.model, call, items), watcher)


# The rest runs in other processes than the server's.


def _fork() -> bool:
    """Fork; return whether this is the process that did it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: those of libraries, which compute nothing now
        return os.fork() != 0


def _fork_workers(channel: socket.socket, models: Mapping[str, Any]) -> NoReturn:
    """Fork a worker for each connection that comes, until the server has ended."""
    try:
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(sign, signal.SIG_IGN)  # the server is told; who ends is not waited for
        _close_all_but(channel.fileno())
        while True:
            message, handles, _, _ = socket.recv_fds(channel, len(HIRE), 1)
            if not message:
                break
            if not _fork():
                channel.close()
                _work(socket.socket(fileno=handles[0]), models)
                break
            os.close(handles[0])
    finally:
        os._exit(0)


def _work(connection: socket.socket, models: Mapping[str, Any]) -> None:
    """Answer tasks until the connection is closed."""
    _lower_priority()
    torch.set_num_threads(1)  # threads that the server had have not come along
    socket.send_fds(connection, [READY], [os.pidfd_open(os.getpid())])
    with contextlib.suppress(OSError, EOFError, ComputationEnded):
        while True:
            server = _Server(connection)
            while _receive_bytes(connection, len(TASK)) != TASK:
                server.hear()  # what was said of the one before, too late
            task: WorkerTask = _receive(connection)
            _send(connection, _compute(task, models[task.model], _Server(connection)))


def _compute(task: WorkerTask, model: Any, server: _Server) -> WorkerResult:
    since, answers, problem = time.process_time(), list[Any](), None
    try:
        with supervise(server):
            answers = [
                pickle.PickleBuffer(one) if isinstance(one, bytes) else one for one in task.call(model, task.items)
            ]
    except Exception as error:
        problem = error
    return WorkerResult(answers, problem, time.process_time() - since)


@final
class _Server:
    """The process that waits for a worker: it says which items are still wanted, and closes when none is."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._wanted: list[bool] | None = None

    def pause(self) -> None:
        try:
            while select.select([self._connection], [], [], 0)[0]:
                _receive_bytes(self._connection, len(WANTED))
                self.hear()
        except (OSError, EOFError):
            raise ComputationEnded from None

    def hear(self) -> None:
        (size,) = SIZE.unpack(_receive_bytes(self._connection, SIZE.size))
        self._wanted = [bool(one) for one in _receive_bytes(self._connection, size)]

    def find_wanted(self) -> list[bool] | None:
        return self._wanted


def _lower_priority() -> None:
    """Compute when others don't, end first where memory lacks, and end with the process that forked this one."""
    import resource  # of Unix, as all that happens here

    os.nice(NICENESS)
    if os.sched_getscheduler(0) == os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(KILLED_FIRST, "ascii")
    status = Path("/proc/self/status").read_text("utf-8").splitlines()
    shared = next(1024 * int(line.split()[1]) for line in status if line.startswith("VmData:"))
    most = shared + int(MEMORY_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):  # a lower limit is set
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def _close_all_but(kept: int) -> None:
    """Close the files of the server, so that its connections end when it ends."""
    for path in list(Path("/proc/self/fd").iterdir()):
        if (number := int(path.name)) > STANDARD_ERROR and number != kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _send(connection: socket.socket, what: Any) -> None:
    """Send an object; what it holds in `PickleBuffer`s goes after it, uncopied."""
    buffers = list[pickle.PickleBuffer]()
    content = pickle.dumps(what, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    parts = [memoryview(content), *(buffer.raw() for buffer in buffers)]
    connection.sendall(SIZE.pack(len(parts)) + b"".join(SIZE.pack(part.nbytes) for part in parts))
    for part in parts:
        connection.sendall(part)


def _receive(connection: socket.socket) -> Any:
    (count,) = SIZE.unpack(_receive_bytes(connection, SIZE.size))
    sizes = [size for (size,) in SIZE.iter_unpack(_receive_bytes(connection, count * SIZE.size))]
    content, *buffers = [_receive_bytes(connection, size) for size in sizes]
    return pickle.loads(content, buffers=buffers)


def _receive_bytes(connection: socket.socket, size: int) -> memoryview:
    """Receive so many bytes; raise EOFError if the other side has ended.

    Many go into fresh memory, which the system fills while others hold Python's lock.
    """
    content = memoryview(mmap.mmap(-1, size) if size > MAPPED_FROM else bytearray(size))
    if size and connection.recv_into(content, size, socket.MSG_WAITALL) < size:
        raise EOFError
    return content
