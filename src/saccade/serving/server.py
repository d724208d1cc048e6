"""The process: uvicorn around the application. When it stops, it first answers all requests that it has."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, cast, final

import typer
import uvicorn
from PIL import Image

from saccade.errors import UserError
from saccade.serving import work
from saccade.serving.app import Application, build
from saccade.serving.http.door import OPENING_SECONDS, OPENINGS_AT_ONCE, Door
from saccade.serving.http.lifetimes import make_stopping_refusal
from saccade.serving.http.logs import JsonHandler, log
from saccade.serving.http.protocol import Connections, Protocol, is_proxy
from saccade.serving.http.turns import Turns
from saccade.serving.models import ServedRun
from saccade.serving.processes.connections import HeldConnection, Inbox
from saccade.serving.processes.workers import Workers, can_fork
from saccade.serving.service import Service
from saccade.serving.settings import Settings

KEEP_ALIVE = 30  # seconds
IN_LINE = 2  # one that is to be opened for so many that may be open
BACKLOG = 2048  # connections waiting to be accepted
OTHER_FILES = 100  # that a server may have open beside its connections and those that are to be opened
TICKS_A_SECOND = 10  # of uvicorn
LINGER = 0.2  # seconds
SWITCH_SECONDS = 0.0003  # that a thread of Python keeps its lock while another waits for it
GRACE = 2.0  # seconds after the last answer, in which the process ends
HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none
WATCHED_BY_SELECT = 512  # connections, on Windows
NO_SUCH_NAME = 11001  # there; elsewhere such numbers are below 0


def run(runs: Sequence[ServedRun], settings: Settings) -> None:
    """Serve until a signal stops the process."""
    logging.getLogger().addHandler(JsonHandler(logging.WARNING))
    with listen(settings) as listening, fork_workers(runs) as workers:
        server = prepare(runs, settings, workers)
        gc.collect()
        gc.freeze()  # what was loaded stays: looking through it took a tenth of a second, in which nobody is served
        sys.setswitchinterval(SWITCH_SECONDS)
        server.run([listening])
        end_process()


@contextmanager
def fork_workers(runs: Sequence[ServedRun]) -> Iterator[Workers | None]:
    """Fork processes for what is slow, where that is safe, until the block ends; no thread may run yet."""
    models = {run.name: run.predictor for run in runs}
    workers = Workers(models, work.FOR_WORKERS) if can_fork(models) else None
    try:
        yield workers
    finally:
        if workers is not None:
            workers.close()


def prepare(runs: Sequence[ServedRun], settings: Settings, workers: Workers | None = None) -> Server:
    """Make a server of these runs that does not listen yet."""
    warnings.filterwarnings("error", category=Image.DecompressionBombWarning)  # then the request is refused
    application = build(runs, settings, workers)
    most, refused = count_connections(settings.max_connections), application.service.metrics.refusals
    connections = Connections(most, settings.timeout, lambda reason: refused.labels(reason).inc())
    turns = Turns()
    config = _configure(application, connections, turns)

    def has_others(address: str) -> bool:
        """Tell whether others ask, unless this is a proxy: then it opens connections for them."""
        return turns.is_shared and not is_proxy(config.loaded_app, address)

    openings = Turns(OPENINGS_AT_ONCE * OPENING_SECONDS, has_others)
    door = Door(openings, most // IN_LINE, lambda reason: refused.labels(reason).inc())
    application.service.metrics.connections.set_function(lambda: len(connections.open))
    application.service.metrics.in_line.set_function(lambda: turns.num_waiting)
    return Server(config, application.service, connections, turns, door, workers)


def _configure(application: Application, connections: Connections, turns: Turns) -> uvicorn.Config:
    config = uvicorn.Config(
        application.app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        http=cast(Any, partial(Protocol, connections=connections, turns=turns)),
        lifespan="on",
        ws="none",
    )
    config.load()
    return config


def listen(settings: Settings) -> socket.socket:
    """Open the socket that the server listens on."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        found = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        if (error.errno or 0) < 0 or error.errno in (errno.EADDRNOTAVAIL, NO_SUCH_NAME):
            raise UserError(f"--host: {settings.host} given; it must be an address of this machine") from None
        why, _, _ = str(error.strerror).partition(" (while")
        raise UserError(f"--port: {settings.port} on {settings.host}: {why}") from None
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
    return found


@final
class Server(uvicorn.Server):
    """Uvicorn's server, which ends in a stated time after a signal, and answers whatever it has accepted.

    For `drain_wait` seconds it goes on, but /ready says 503 and answers close their connections. For `drain_timeout`
    seconds it answers what it has, and refuses what is new with 503. What is left then is answered with 503, and the
    process ends. Ctrl-C does not wait; a second signal ends the process at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        connections: Connections,
        turns: Turns,
        door: Door,
        workers: Workers | None,
    ) -> None:
        super().__init__(config)
        self.service, self.readiness, self.connections, self.turns = service, service.readiness, connections, turns
        self.door, self.workers = door, workers
        self._refuses_from = self._ends_at = math.inf
        self._beginning = set[asyncio.Task[Any]]()
        self._to_say: int | None = None  # the requests there were when it began to drain
        self.inbox: Inbox | None = None  # of connections that another process accepts
        self.address: tuple[str, int] | None = None
        self.on_listening: Callable[[], None] = lambda: None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve in an event loop that can watch sockets, which Windows's own can't."""
        if not hasattr(asyncio, "ProactorEventLoop"):
            super().run(sockets)
            return
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self.serve(sockets))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and log where."""
        await super().startup([])
        self.door.listen(sockets or (), self._begin)
        if self.inbox is not None:
            asyncio.get_running_loop().add_reader(self.inbox.channel, self.inbox.take, self._take)
        addresses = [listening.getsockname()[:2] for listening in sockets or ()]
        for host, port in [self.address] if self.address is not None else addresses:
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            process = self.service.settings.process
            several = {} if process is None else {"process": process.number}
            models = self.service.models.models
            engines = {name: model.run.predictor.engine for name, model in models.items()}
            log("listening", url=url, models=list(models), engines=engines, **several)
            if said := self.service.sites.warning:
                log("warning", said=said)
            if sys.stdout.isatty() and not several.get("process"):
                typer.echo(f"Open {url} in a browser; Ctrl-C stops it.")
        self.on_listening()

    def _take(self, held: HeldConnection, connection: socket.socket) -> None:
        """Answer a connection that another process has accepted."""
        self.door.take(connection, partial(self._begin, connection, held), held.end)

    def _begin(self, connection: socket.socket, held: HeldConnection | None = None) -> None:
        """Start Uvicorn's protocol on a connection that was accepted."""
        loop = asyncio.get_running_loop()
        protocol = cast(Any, self.config.http_protocol_class)(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
        )
        protocol.held = held
        task = loop.create_task(loop.connect_accepted_socket(lambda: protocol, connection))
        self._beginning.add(task)
        task.add_done_callback(self._has_begun)

    def _has_begun(self, task: asyncio.Task[Any]) -> None:
        self._beginning.discard(task)
        if not task.cancelled():
            task.exception()  # the client may have gone in the meantime: nothing is to be done about that

    def _give_back(self, inbox: Inbox) -> None:
        """Give back idle connections, as many as others are to have; to retire, all, and end when none is left."""
        connections = [cast(Protocol, one) for one in self.server_state.connections]
        idle = [one for one in connections if one.is_idle]
        for connection in idle if inbox.is_retiring else idle[: inbox.num_to_share]:
            connection.give_back()
        inbox.num_to_share = max(0, inbox.num_to_share - len(idle))
        if inbox.is_retiring:
            self.should_exit = not connections and not self._beginning and not self.door.num_waiting

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Drain when the terminal closes too, unless that is ignored (nohup)."""
        with super().capture_signals():
            if (
                HANGUP is None
                or threading.current_thread() is not threading.main_thread()
                or signal.getsignal(HANGUP) == signal.SIG_IGN
            ):
                yield
                return
            before = signal.signal(HANGUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(HANGUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; end the process at the second."""
        if not self.readiness.is_ready:
            super().handle_exit(sig, frame)
        elif self.readiness.is_draining:
            end_process()
        else:
            self.drain(0.0 if sig == signal.SIGINT else self.service.settings.drain_wait)
            _end_process_after(self._ends_at + GRACE - time.monotonic())

    def drain(self, wait: float) -> None:
        """Begin to stop: go on for some seconds, then answer what there is."""
        self.readiness.is_draining = True
        self._to_say = self.readiness.requests.total
        self._refuses_from = time.monotonic() + wait
        self._ends_at = self._refuses_from + self.service.settings.drain_timeout

    async def on_tick(self, counter: int) -> bool:
        """Cut off who does not read, and go on with stopping; uvicorn calls this ten times a second."""
        now = time.monotonic()
        if not counter % TICKS_A_SECOND:
            self.connections.cut_unread()
            self.service.share_metrics()
            if self.workers is not None:
                self.workers.end_idle()
        if self.inbox is not None:
            self.inbox.send()
            self._give_back(self.inbox)
        if self.readiness.is_draining:
            if self._to_say is not None:  # not by the signal itself, which may have come while a line was written
                log("draining", requests=self._to_say)
                self._to_say = None
            self.readiness.is_refusing = now >= self._refuses_from
            is_done = self.readiness.is_refusing and not self.readiness.open and not self._num_in_line
            self.should_exit = self.should_exit or is_done or now >= self._ends_at
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the door, answer what is left with 503, and end the models' threads."""
        if self.readiness.is_draining:
            self.readiness.is_refusing = True
            self.door.close()
            await asyncio.sleep(LINGER)  # what was on its way gets its 503
            self.readiness.end_all(make_stopping_refusal)
            self.config.timeout_graceful_shutdown = math.ceil(max(LINGER, self._ends_at - time.monotonic()))
        else:
            self.door.close()
        await super().shutdown(sockets)
        self.door.drop()

    @property
    def _num_in_line(self) -> int:
        return self.turns.num_waiting + self.door.num_waiting


def end_process() -> None:
    """End at once: an interpreter that shuts down takes seconds, and aborts where threads compute inside torch."""
    log("stopped")
    with contextlib.suppress(OSError, RuntimeError):
        sys.stdout.flush()
    os._exit(0)


def _end_process_after(seconds: float) -> None:
    """End the process in some seconds, whatever happens until then."""
    timer = threading.Timer(seconds, end_process)
    timer.daemon = True
    timer.start()


def count_connections(wanted: int) -> int:
    """Return how many connections the limit of open files allows, which is raised as far as it may be."""
    limit = _raise_limit(wanted + wanted // IN_LINE + OTHER_FILES)
    if (most := min(wanted, (limit - OTHER_FILES) * IN_LINE // (IN_LINE + 1))) < 1:
        raise UserError(f"open files: the limit is {limit}; allowed: more than {OTHER_FILES + 1} (see ulimit -n)")
    return most


def _raise_limit(needed: int) -> int:
    """Raise the limit of open files as far as it may be, and return it."""
    try:
        import resource
    except ImportError:
        return WATCHED_BY_SELECT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
