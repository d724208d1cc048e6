"""The process: uvicorn around the application. When it stops, it first answers all requests that it has."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import final

import typer
import uvicorn
from PIL import Image

from saccade.errors import UserError
from saccade.serving.app import build
from saccade.serving.http.logs import JsonHandler, log
from saccade.serving.http.protocol import Protocol
from saccade.serving.models import ServedRun
from saccade.serving.service import Service
from saccade.serving.settings import Settings

KEEP_ALIVE = 30  # seconds
BACKLOG = 2048  # connections waiting to be accepted


def run(runs: Sequence[ServedRun], settings: Settings) -> None:
    """Serve until a signal stops the process."""
    logging.getLogger().addHandler(JsonHandler(logging.WARNING))
    prepare(runs, settings).run([listen(settings)])


def prepare(runs: Sequence[ServedRun], settings: Settings) -> Server:
    """Make a server of these runs that does not listen yet."""
    warnings.filterwarnings("error", category=Image.DecompressionBombWarning)  # then the request is refused
    application = build(runs, settings)
    config = uvicorn.Config(
        application.app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        http=Protocol,
        lifespan="on",
        ws="none",
    )
    return Server(config, application.service)


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
    """Uvicorn's server. The first signal drains it: it answers what it has, /ready says 503, then it stops."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service, self.readiness = service, service.readiness

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and log where."""
        await super().startup(sockets)
        for listening in sockets or ():
            host, port = listening.getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            log("listening", url=url, models=list(self.service.models.models))
            if said := self.service.sites.warning:
                log("warning", said=said)
            if sys.stdout.isatty():
                typer.echo(f"Open {url} in a browser; Ctrl-C stops it.")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; stop at once at the second."""
        if self.readiness.is_draining or not self.readiness.is_ready:
            self.force_exit = self.readiness.is_draining  # don't wait for open requests
            super().handle_exit(sig, frame)
            return
        self.readiness.is_draining = True

    async def on_tick(self, counter: int) -> bool:
        """Stop a draining server without requests; uvicorn calls this ten times a second."""
        if self.readiness.is_draining and self.readiness.num_requests == 0:
            self.should_exit = True
        return await super().on_tick(counter)
