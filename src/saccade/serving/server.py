"""The process: uvicorn around the application. When it stops, it first answers all requests that it has."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import math
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, cast, final

import typer
import uvicorn
from PIL import Image

from saccade.errors import UserError
from saccade.serving.app import build
from saccade.serving.http.lifetimes import stopping
from saccade.serving.http.logs import JsonHandler, log
from saccade.serving.http.protocol import IN_LINE, Connections, Protocol
from saccade.serving.http.turns import Turns
from saccade.serving.models import ServedRun
from saccade.serving.processes.connections import Held, Inbox
from saccade.serving.service import Service
from saccade.serving.settings import Settings

KEEP_ALIVE = 30  # seconds
BACKLOG = 2048  # connections waiting to be accepted
OTHER_FILES = 100  # that a server may have open beside its connections and those that are to be opened
TICKS_A_SECOND = 10  # of uvicorn
LINGER = 0.2  # seconds
SWITCH_SECONDS = 0.0003  # that a thread of Python keeps its lock while another waits for it
GRACE = 2.0  # seconds after the last answer, in which the process ends
HANGUP = signal.SIGHUP


def run(runs: Sequence[ServedRun], settings: Settings) -> None:
    """Serve until a signal stops the process."""
    logging.getLogger().addHandler(JsonHandler(logging.WARNING))
    server = prepare(runs, settings)
    gc.collect()
    gc.freeze()  # what was loaded stays: looking through it again took a tenth of a second, in which nobody is served
    sys.setswitchinterval(SWITCH_SECONDS)
    server.run([listen(settings)])
    end_process()


def prepare(runs: Sequence[ServedRun], settings: Settings) -> Server:
    """Make a server of these runs that does not listen yet."""
    warnings.filterwarnings("error", category=Image.DecompressionBombWarning)  # then the request is refused
    application = build(runs, settings)
    most, refused = count_connections(settings.max_connections), application.service.metrics.refusals
    connections = Connections(most, settings.timeout, lambda reason: refused.labels(reason).inc())
    turns = Turns()
    application.service.metrics.connections.set_function(lambda: len(connections.open))
    application.service.metrics.in_line.set_function(lambda: turns.num_waiting)
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
    return Server(config, application.service, connections, turns)


def listen(settings: Settings) -> socket.socket:
    """Open the socket that the server listens on."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        number = error.errno or 0
        if number < 0 or number == errno.EADDRNOTAVAIL:  # below 0: no such name
            raise UserError(f"--host: {settings.host} given; it must be an address of this machine") from None
        raise UserError(f"--port: {settings.port} on {settings.host}: {os.strerror(number)}") from None


@final
class Server(uvicorn.Server):
    """Uvicorn's server, which ends in a stated time after a signal, and answers whatever it has accepted.

    For `drain_wait` seconds it goes on, but /ready says 503 and answers close their connections. For `drain_timeout`
    seconds it answers what it has, and refuses what is new with 503. What is left then is answered with 503, and the
    process ends. Ctrl-C does not wait; a second signal ends the process at once.
    """

    def __init__(self, config: uvicorn.Config, service: Service, connections: Connections, turns: Turns) -> None:
        super().__init__(config)
        self.service, self.readiness, self.connections, self.turns = service, service.readiness, connections, turns
        self._refuses_from = self._ends_at = math.inf
        self._beginning = set[asyncio.Task[Any]]()
        self._to_say: int | None = None  # the requests there were when it began to drain
        self.inbox: Inbox | None = None  # of connections that another process accepts
        self.address: tuple[str, int] | None = None
        self.on_listening: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and log where."""
        await super().startup(sockets)
        if self.inbox is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self.inbox.channel, self.inbox.take, partial(self._begin, loop))
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

    def _begin(self, loop: asyncio.AbstractEventLoop, held: Held, connection: socket.socket) -> None:
        """Answer a connection that another process has accepted."""
        protocol = cast(Any, self.config.http_protocol_class)(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
        )
        protocol.held = held
        task = loop.create_task(loop.connect_accepted_socket(lambda: protocol, connection))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    def _retire(self) -> None:
        """Give back what is idle, and end when nothing is left."""
        connections = [cast(Protocol, one) for one in self.server_state.connections]
        for connection in connections:
            if connection.is_idle:
                connection.give_back()
        self.should_exit = not connections and not self._beginning

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Drain when the terminal closes too, unless that is ignored (nohup)."""
        with super().capture_signals():
            if threading.current_thread() is not threading.main_thread() or signal.getsignal(HANGUP) == signal.SIG_IGN:
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
        if self.inbox is not None:
            self.inbox.send()
            if self.inbox.is_retiring:
                self._retire()
        if self.readiness.is_draining:
            if self._to_say is not None:  # not by the signal itself, which may have come while a line was written
                log("draining", requests=self._to_say)
                self._to_say = None
            self.readiness.is_refusing = now >= self._refuses_from
            is_done = self.readiness.is_refusing and not self.readiness.open and not self.turns.num_waiting
            self.should_exit = self.should_exit or is_done or now >= self._ends_at
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the door, answer what is left with 503, and end the models' threads."""
        if self.readiness.is_draining:
            self.readiness.is_refusing = True
            for server in self.servers:
                server.close()
            await asyncio.sleep(LINGER)  # what was on its way gets its 503
            self.readiness.end_all(stopping)
            self.config.timeout_graceful_shutdown = math.ceil(max(LINGER, self._ends_at - time.monotonic()))
        await super().shutdown(sockets)


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
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + wanted // IN_LINE + OTHER_FILES
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if (most := min(wanted, (soft - OTHER_FILES) * IN_LINE // (IN_LINE + 1))) < 1:
        raise UserError(f"open files: the limit is {soft}; allowed: more than {OTHER_FILES + 1} (see ulimit -n)")
    return most
