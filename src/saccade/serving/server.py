"""The process: uvicorn around the application, and a stop in which nothing that waits is lost."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import FrameType
from typing import final

import uvicorn

from saccade.data.mistakes import Mistake
from saccade.serving.app import build
from saccade.serving.logs import log
from saccade.serving.models import Run
from saccade.serving.security import Doors
from saccade.serving.settings import Settings

LONGEST_KEEP_ALIVE = 30  # seconds


def run(runs: Sequence[Run], settings: Settings) -> None:
    """Serve until a signal says stop."""
    built = build(runs, settings)
    config = uvicorn.Config(
        built.app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=LONGEST_KEEP_ALIVE,
        backlog=2048,
        lifespan="on",
    )
    listening = _listen(settings)
    host, port = listening.getsockname()[:2]
    names = [model.run.name for model in built.service.models.models.values()]
    log("listening", url=f"http://{f'[{host}]' if ':' in host else host}:{port}", models=names)
    _Server(config, built.service.doors).run([listening])


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        raise Mistake(f"--port: {settings.port} on {settings.host}: {error.strerror or error}") from None
    return listening


@final
class _Server(uvicorn.Server):
    """Uvicorn's, but a first signal only drains: what waits is answered, /ready says 503, then it stops."""

    def __init__(self, config: uvicorn.Config, doors: Doors) -> None:
        super().__init__(config)
        self.doors = doors

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal; a second stops at once."""
        if self.doors.is_draining or not self.doors.is_ready:
            super().handle_exit(sig, frame)
            return
        self.doors.is_draining = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: nothing is left to be answered."""
        if self.doors.is_draining and self.doors.num_inside == 0:
            self.should_exit = True
        return await super().on_tick(counter)
