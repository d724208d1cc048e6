"""The process: uvicorn around the application, and a stop in which nothing that waits is lost."""

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

LONGEST_KEEP_ALIVE = 30  # seconds
BACKLOG = 2048  # connections that wait to be accepted


def run(runs: Sequence[ServedRun], settings: Settings) -> None:
    """Serve until a signal says stop."""
    logging.getLogger().addHandler(JsonHandler(logging.WARNING))
    prepared(runs, settings).run([listen(settings)])


def prepared(runs: Sequence[ServedRun], settings: Settings) -> Server:
    """A server of these runs that listens to nobody yet."""
    warnings.filterwarnings("error", category=Image.DecompressionBombWarning)  # a request is refused, nothing is said
    built = build(runs, settings)
    config = uvicorn.Config(
        built.app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=LONGEST_KEEP_ALIVE,
        http=Protocol,
        lifespan="on",
        ws="none",
    )
    return Server(config, built.service)


def listen(settings: Settings) -> socket.socket:
    """The door, open."""
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
    """Uvicorn's, but a first signal only drains: what waits is answered, /ready says 503, then it stops."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service, self.doors = service, service.doors

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say where."""
        await super().startup(sockets)
        for listening in sockets or ():
            host, port = listening.getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            log("listening", url=url, models=list(self.service.models.models))
            if sys.stdout.isatty():
                typer.echo(f"Open {url} in a browser; Ctrl-C stops it.")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal; a second stops at once."""
        if self.doors.is_draining or not self.doors.is_ready:
            self.force_exit = self.doors.is_draining  # don't wait for what is inside
            super().handle_exit(sig, frame)
            return
        self.doors.is_draining = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: nothing is left to be answered."""
        if self.doors.is_draining and self.doors.num_inside == 0:
            self.should_exit = True
        return await super().on_tick(counter)
