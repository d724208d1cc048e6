"""A server that stops: it says so, goes on for a while, refuses what is new, and answers whatever it has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from servers import Serving, SlowTranslator, serving, slow_translator, until

ASKED = {"q": "a b c", "source": "en", "target": "fr"}


@contextmanager
def one_inside(drain_timeout: float = 60.0) -> Iterator[tuple[SlowTranslator, Serving, list[httpx.Response]]]:
    """A server with one request, which waits for the model's gate; its answer comes into the list."""
    model, runs = slow_translator()
    answers: list[httpx.Response] = []
    with serving(runs, drain_timeout=drain_timeout) as server:
        client = threading.Thread(target=lambda: answers.append(server.post("/translate", **ASKED)))
        client.start()
        assert model.begun.wait(30)
        yield model, server, answers
        client.join(30)
        until(lambda: server.server.should_exit)


def test_at_first_it_goes_on_but_is_not_ready_and_keeps_no_connection() -> None:
    model, runs = slow_translator()
    model.gate.set()
    with serving(runs) as server:
        assert server.client.get("/ready").status_code == 200
        server.server.drain(60)
        assert server.client.get("/ready").json() == {"error": "stopping"}
        found = server.post("/translate", **ASKED)
        assert found.json() == {"translatedText": "A B C"}
        assert found.headers["connection"] == "close"


def test_then_it_refuses_what_is_new_and_answers_what_it_has() -> None:
    with one_inside() as (model, server, answers):
        server.server.drain(0)
        until(lambda: server.service.readiness.is_refusing)
        with httpx.Client(base_url=server.url) as other:
            refused = other.post("/translate", json=ASKED)
            assert (refused.status_code, refused.json()) == (503, {"error": "The server is stopping"})
            assert refused.headers["retry-after"] == "5"
            assert other.get("/health").status_code == 200
        model.gate.set()
    assert answers[0].json() == {"translatedText": "A B C"}


def test_in_the_end_whatever_is_left_is_answered_with_503() -> None:
    with one_inside(drain_timeout=0.3) as (model, server, answers):
        server.server.drain(0)
        until(lambda: bool(answers))
        assert (answers[0].status_code, answers[0].json()) == (503, {"error": "The server is stopping"})
        model.gate.set()
