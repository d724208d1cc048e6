"""Servers for tests: real ones, on a port that is free, in a thread of the test's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from saccade.serving.models import ServedRun
from saccade.serving.server import listen, prepare
from saccade.serving.service import Service
from saccade.serving.settings import Settings


class Serving(NamedTuple):
    """Where it listens, a client for it, and what is behind it."""

    url: str
    port: int
    client: httpx.Client
    service: Service

    def post(self, path: str, **body: Any) -> httpx.Response:
        """JSON in."""
        return self.client.post(path, json=body)


def predictor_of(run: ServedRun) -> Any:
    """A run's predictor, of whichever class its task has."""
    return run.predictor


@contextmanager
def serving(runs: Sequence[ServedRun], **settings: Any) -> Iterator[Serving]:
    """A server of these runs."""
    given = Settings(port=0, quiet=True, **settings)
    server, listening = prepare(runs, given), listen(given)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = listening.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            yield Serving(url, port, client, server.service)
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
    assert not thread.is_alive()
