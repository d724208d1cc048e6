"""What a request may take: time, room, and its part of what clients share."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from saccade.serving.http import lifetimes
from saccade.serving.models import ServedRun
from servers import Serving, SlowTranslator, serving, slow_translator, until

ASKED = {"q": "a b c", "source": "en", "target": "fr"}


def test_an_answer_that_takes_too_long_is_a_504_and_its_work_is_dropped() -> None:
    model, runs = slow_translator()
    with serving(runs, timeout=0.3) as server:
        found = server.post("/translate", **ASKED)
        assert (found.status_code, found.json()) == (504, {"error": "Timeout: no answer within 0.3 seconds"})
        assert server.post("/translate", **ASKED).status_code == 504  # the model still computes the first
        assert server.client.get("/ready").status_code == 503
        assert server.client.get("/ready").json()["error"].startswith("model slow is stuck: ")
        model.gate.set()
        until(lambda: server.client.get("/ready").status_code == 200)
        assert model.seen == ["a b c"]


def test_a_client_has_no_more_than_half_of_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "MAX_REQUESTS", 4)
    model, runs = slow_translator()
    with serving(runs) as server:
        threads = [threading.Thread(target=server.post, args=("/translate",), kwargs=ASKED) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: server.service.readiness.requests.total == 2)
        found = server.post("/translate", **ASKED)
        assert (found.status_code, found.json()) == (429, {"error": "Slowdown: too many requests at once"})
        assert server.service.metrics.registry.get_sample_value("saccade_requests_in_flight") == 2
        model.gate.set()
        for thread in threads:
            thread.join(30)


def test_a_beam_counts_against_the_limit_of_characters(translating: list[ServedRun]) -> None:
    with serving(translating[:1], max_characters=40) as server:  # its own beam is 2
        assert server.post("/translate", **{**ASKED, "q": "a" * 40}).status_code == 200
        assert server.post("/translate", **{**ASKED, "q": "a" * 10}, alternatives=7).status_code == 200
        found = server.post("/translate", **{**ASKED, "q": "a" * 11}, alternatives=7)
        said = "Invalid request: request (11 characters x 4 for a beam of 8) exceeds text limit (40)"
        assert (found.status_code, found.json()) == (400, {"error": said})
        assert server.post("/v1/translate", q="a" * 30, beam=4).status_code == 400
        assert server.post("/v1/translate", q="a" * 40, beam=1).status_code == 200


def test_a_batch_without_memory_is_a_503_and_the_server_goes_on() -> None:
    model, runs = slow_translator()
    model.gate.set()
    with serving(runs) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(SlowTranslator, "predict_best", fail)
        found = server.post("/translate", **ASKED)
        assert (found.status_code, found.json()) == (503, {"error": "The server is out of memory"})
        patch.undo()
        assert server.post("/translate", **ASKED).status_code == 200


def fail(*_: Any) -> None:
    raise RuntimeError("could not create a primitive")


def test_requests_say_how_long_they_waited_and_batches_how_long_they_took(served: Serving) -> None:
    served.post("/translate", **ASKED)
    text = served.client.get("/metrics").text
    for name in ("queue_seconds_count", "batch_seconds_count"):
        assert f'saccade_{name}{{model="there"}} 0.0' not in text
    assert "process_resident_memory_bytes" in text
