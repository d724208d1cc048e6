"""Servers for tests: real ones, on a port that is free, in a thread of the test's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, final

import httpx

from saccade.inspection.insight import Insight
from saccade.serving.models import LanguagePair, ServedRun
from saccade.serving.processes.workers import Workers
from saccade.serving.server import Server, listen, prepare
from saccade.serving.service import Service
from saccade.serving.settings import Settings
from saccade.tasks.base import Predictor, Traits
from saccade.tasks.translate.result import TranslationResult


class Serving(NamedTuple):
    """Where it listens, a client for it, and what is behind it."""

    url: str
    port: int
    client: httpx.Client
    service: Service
    server: Server

    def post(self, path: str, **body: Any) -> httpx.Response:
        """JSON in."""
        return self.client.post(path, json=body)


def predictor_of(run: ServedRun) -> Any:
    """A run's predictor, of whichever class its task has."""
    return run.predictor


@contextmanager
def serving(runs: Sequence[ServedRun], workers: Workers | None = None, **settings: Any) -> Iterator[Serving]:
    """A server of these runs."""
    given = Settings(**{"port": 0, "quiet": True, **settings})
    server, listening = prepare(runs, given, workers), listen(given)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = listening.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=url, timeout=60, verify=False) as client:
            yield Serving(url, port, client, server.service, server)
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
    assert not thread.is_alive()


@final
class SlowTranslator(Predictor):
    """A translator that waits for a gate."""

    traits = Traits("translate", beam=1)

    def __init__(self) -> None:
        self.gate, self.begun = threading.Event(), threading.Event()
        self.seen: list[str] = []

    def stream(self, inputs: Iterable[str], /) -> Iterator[TranslationResult]:
        raise NotImplementedError

    def predict_best(self, texts: Iterable[str], /) -> list[list[TranslationResult]]:
        self.begun.set()
        assert self.gate.wait(30)
        self.seen += texts
        return [[TranslationResult(text.upper(), 0.0, [], [])] for text in texts]

    def look(self, texts: Iterable[str], /, **options: Any) -> list[Insight]:
        del options
        return [Insight("translate", TranslationResult("", 0.0, [], []), {}, {}) for _ in texts]


def slow_translator() -> tuple[SlowTranslator, list[ServedRun]]:
    """A run of such a translator, English to French."""
    model = SlowTranslator()
    return model, [ServedRun("slow", "translate", model, LanguagePair("en", "fr"))]


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that a server does in its own time."""
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)
