"""Answers that are sent while they are written: each part at once, errors as everywhere, and none for who has left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import httpx
import pytest

from saccade.decoding.slices import pause
from saccade.inspection.insight import Insight
from saccade.serving.models import ServedRun
from saccade.tasks.base import Predictor, Result, Traits
from saccade.tasks.write.result import Writing
from servers import Serving, predictor_of, serving, until


def events_of(lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_parts_and_then_the_whole(all_served: Serving, judging: list[ServedRun]) -> None:
    (run,) = (run for run in judging if run.task == "write")
    asked = {"q": "a b", "seed": 4, "max_length": 9}
    found = all_served.post("/v1/write", stream=True, **asked)
    assert found.headers["content-type"].startswith("text/event-stream")
    assert found.headers["cache-control"] == "no-store"
    *parts, (last, whole) = events_of(found.text.splitlines())
    assert {name for name, _ in parts} == {"text"}
    assert (last, whole["model"]) == ("done", run.name)
    assert "".join(part["text"] for _, part in parts) == whole["answers"][0]["text"]
    assert whole == all_served.post("/v1/write", **asked).json()
    assert whole["answers"][0]["whole"] == predictor_of(run).predict(["a b"], seed=4, max_length=9)[0].whole


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"q": ["a", "b"]}, "q: 2 texts given; with stream there must be one"),
        ({"q": []}, "q: 0 texts given; with stream there must be one"),
        ({"q": "a", "beam": 2, "temperature": 0.5}, "temperature: not an option of a beam"),
        ({"q": "a", "beam": 99}, "beam: Input should be less than or equal to 16"),
        ({"q": "a", "model": "tags"}, "model: no model of the task write has this name"),
    ],
)
def test_what_is_wrong_is_refused_as_everywhere(body: dict[str, Any], message: str, all_served: Serving) -> None:
    found = all_served.post("/v1/write", stream=True, **body)
    assert found.status_code == 400
    assert message in found.json()["error"]


def test_only_tasks_that_write_on_take_stream(all_served: Serving) -> None:
    assert "stream: Extra inputs" in all_served.post("/v1/classify", q="a", stream=True).json()["error"]


@final
class Endless(Predictor):
    """Writes a letter every few milliseconds, for ever, as long as somebody waits for it."""

    traits = Traits("write", streams=True)

    def __init__(self) -> None:
        self.num_written, self.ended = 0, False

    def stream(self, inputs: Iterable[str], /) -> Iterator[Result]:
        raise NotImplementedError

    def look(self, inputs: Iterable[Any], /, **options: Any) -> list[Insight]:
        del options
        return [Insight("write", Writing("", "", "", 0.0, [], []), {}, {}) for _ in inputs]

    def follow(self, given: str, tell: Callable[[str], None], /, **options: Any) -> Result:
        del given, options
        try:
            while True:
                tell("x")
                self.num_written += 1
                pause()
                time.sleep(0.002)
        finally:
            self.ended = True


def test_parts_come_while_it_writes_and_it_stops_when_the_reader_leaves() -> None:
    model = Endless()
    with serving([ServedRun("endless", "write", model, None)]) as served:
        with served.client.stream("POST", "/v1/write", json={"q": "a", "stream": True}) as response:
            events = events_of(response.iter_lines())
            assert [next(events) for _ in range(3)] == [("text", {"text": "x"})] * 3
            assert not model.ended
        until(lambda: model.ended)


def test_what_takes_too_long_ends_with_an_error() -> None:
    model = Endless()
    with serving([ServedRun("endless", "write", model, None)], timeout=2.0) as served:
        found = list(events_of(served.post("/v1/write", q="a", stream=True).text.splitlines()))
        assert found[-1] == ("error", {"error": "Timeout: no answer within 2 seconds"})
        assert found[0] == ("text", {"text": "x"})
        until(lambda: model.ended)


def test_a_failure_on_the_way_is_an_error_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Endless, given: str, tell: Callable[[str], None], /, **options: Any) -> Result:
        del self, given, options
        tell("x")
        time.sleep(0.05)
        raise MemoryError

    monkeypatch.setattr(Endless, "follow", fail)
    with serving([ServedRun("endless", "write", Endless(), None)]) as served:
        found = list(events_of(served.post("/v1/write", q="a", stream=True).text.splitlines()))
        assert found == [("text", {"text": "x"}), ("error", {"error": "The server is out of memory"})]


def test_a_text_without_events_is_answered_too(all_served: Serving) -> None:
    with httpx.Client(base_url=all_served.url) as client:
        found = client.post("/v1/write", json={"q": ["a", ""], "max_length": 3}).json()["answers"]
    assert len(found) == 2
