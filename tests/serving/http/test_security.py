"""What stands before every route: keys, host names, sizes, headers; and what happens to work nobody waits for."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest

from saccade.errors import UserError
from saccade.serving import app
from saccade.serving.http import lifetimes, protocol
from saccade.serving.http.responses import Refusal
from saccade.serving.http.security import Keys, read_keys
from saccade.serving.models import ServedRun
from servers import Serving, serving, slow_translator, until

ASKED = {"q": "a b c", "source": "en", "target": "fr"}
KEY = "correct horse"


def test_keys_are_asked_for_where_there_are_any(translating: list[ServedRun]) -> None:
    with serving(translating, keys=(KEY, "another key")) as guarded:
        missing = guarded.post("/translate", **ASKED)
        assert (missing.status_code, missing.json()["error"]) == (
            400, "Please contact the server operator to get an API key",
        )  # fmt: skip
        wrong = guarded.post("/translate", **ASKED, api_key="correct hors")
        assert (wrong.status_code, wrong.json()) == (403, {"error": "Invalid API key"})
        assert guarded.post("/translate", **ASKED, api_key=KEY).status_code == 200
        assert guarded.client.post("/translate", data={**ASKED, "api_key": "another key"}).status_code == 200
        assert guarded.post("/detect", q="a").status_code == 400
        for headers in ({"Authorization": f"Bearer {KEY}"}, {"X-API-Key": KEY}):
            for path, body in (("/v1/translate", {"q": "a"}), ("/translate", {**ASKED, "api_key": ""})):
                assert guarded.client.post(path, json=body, headers=headers).status_code == 200, path
            assert guarded.client.get("/metrics", headers=headers).status_code == 200
        for missing in (guarded.post("/v1/translate", q="a"), guarded.client.get("/metrics")):
            assert (missing.status_code, missing.headers["www-authenticate"]) == (401, "Bearer")
            assert missing.json()["error"].startswith("an API key is missing: ")
        assert guarded.client.get("/metrics", headers={"X-API-Key": "correct hors"}).status_code == 403
        assert guarded.client.get("/frontend/settings").json()["keyRequired"] is True
        assert guarded.client.get("/health").status_code == 200


@pytest.mark.parametrize("given", [None, 5, ["a"], "", "\ud800", "x" * 10_000])
def test_whatever_is_no_key_is_refused(given: object) -> None:
    with pytest.raises(Refusal):
        Keys([KEY]).check(given)
    Keys().check(given)


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# of the office\n{KEY}\n\nanother key\n", encoding="utf-8")
    assert read_keys(path) == (KEY, "another key")
    path.write_text("# none\n", encoding="utf-8")
    with pytest.raises(UserError, match="--api-keys: no key in"):
        read_keys(path)
    path.write_text("short\n", encoding="utf-8")
    with pytest.raises(UserError, match="is too short; allowed: 8 characters or more"):
        read_keys(path)


def test_every_answer_has_the_headers_and_no_origin_is_allowed(served: Serving) -> None:
    for found in (
        served.client.get("/health", headers={"Origin": "https://evil.example"}),
        served.client.get("/nowhere"),
        served.post("/translate"),
        served.client.get("/health", headers={"Host": "evil.example"}),
    ):
        assert "default-src 'none'" in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in found.headers
        assert "server" not in found.headers


def raw(port: int, *parts: bytes) -> bytes:
    """What a server says to bytes that come one by one."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except OSError:  # it has heard enough
                break
        found = b""
        with contextlib.suppress(ConnectionResetError):  # it closed on what it didn't want to read
            while b"\r\n\r\n" not in found and (part := connection.recv(65536)):
                found += part
        return found


HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_bodies_are_counted_as_they_come_in(translating: list[ServedRun]) -> None:
    with serving(translating[:1], max_body=5000) as small:
        announced = raw(small.port, HEAD + b"Content-Length: 5001\r\n\r\n")  # nothing of it is waited for
        assert announced.startswith(b"HTTP/1.1 413 ")
        chunk = b"3e8\r\n" + b"x" * 1000 + b"\r\n"
        unannounced = raw(small.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 6)
        assert unannounced.startswith(b"HTTP/1.1 413 ")
        enough = {**ASKED, "x": "x" * 4000}
        assert small.client.post("/translate", json=enough).status_code == 200


def test_a_body_of_many_values_is_not_read(translating: list[ServedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON is read in the event loop, and a million numbers take seconds; no text has so many commas."""
    monkeypatch.setattr(app, "OTHER_VALUES", 10)
    with serving(translating[:1], max_characters=1000, max_texts=50) as small:
        right = {"q": ",".join("abcd" * 100), "source": "en", "target": "fr"}
        assert small.post("/translate", **right).status_code == 200
        found = small.post("/v1/look", text="a", heads=[0] * 1100)
        assert (found.status_code, found.json()) == (413, {"error": "Invalid request: the body has too many values"})
        picture = {"image": ("picture.png", b"," * 5000)}
        assert small.client.post("/v1/caption", files=picture).status_code == 400  # but not 413: a file has no values


def test_keys_in_headers_are_checked_before_the_body(translating: list[ServedRun]) -> None:
    with serving(translating[:1], keys=(KEY,)) as guarded:
        head = HEAD.replace(b"/translate", b"/v1/translate") + b"Content-Length: 5000\r\n"
        assert raw(guarded.port, head + b"\r\n").startswith(b"HTTP/1.1 401 ")  # no byte of the body was sent
        assert raw(guarded.port, head + b"X-API-Key: wrong horse\r\n\r\n").startswith(b"HTTP/1.1 403 ")


def test_requests_have_names(translating: list[ServedRun], capsys: pytest.CaptureFixture[str]) -> None:
    with serving(translating, keys=(KEY,), quiet=False) as server:
        for number, name in enumerate(("req-1.a/b", "x" * 129, 'a"b', "")):
            headers = {"X-Request-ID": name, "X-API-Key": KEY} if name else {"X-API-Key": KEY}
            found = server.client.post("/translate", json=ASKED, headers=headers)
            assert (found.headers["x-request-id"] == name) == (number == 0)
            assert len(found.headers["x-request-id"]) == (9 if number == 0 else 16)
        names = [server.client.get("/health").headers["x-request-id"] for _ in range(2)]
        assert names[0] != names[1]
        refused = server.client.post("/nowhere", headers={"Host": "evil.example", "X-Request-ID": "mine"})
        assert refused.headers["x-request-id"] == "mine"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    first = next(line for line in lines if line["event"] == "request")
    assert {name: first[name] for name in ("id", "route", "status", "model", "characters", "key")} == {
        "id": "req-1.a/b", "route": "/translate", "status": 200, "model": "there", "characters": 5, "key": 1,
    }  # fmt: skip
    assert "model" not in next(line for line in lines if line.get("id") == "mine")


def test_guesses_of_a_key_are_counted_everywhere(translating: list[ServedRun]) -> None:
    with serving(translating[:1], keys=(KEY,), rate=2) as guarded:
        found = [guarded.client.get("/metrics", headers={"X-API-Key": "a wrong key"}).status_code for _ in range(3)]
        assert found == [403, 403, 429]
        assert guarded.client.get("/metrics", headers={"X-API-Key": KEY}).status_code == 200


def test_an_address_may_end_with_a_slash_and_head_is_get_without_a_body(served: Serving) -> None:
    assert served.post("/translate/", **ASKED).status_code == 200
    assert served.client.get("/health/").json() == {"status": "ok"}
    for path in ("/health", "/ready", "/languages", "/metrics", "/v1/models", "/"):
        found = served.client.head(path)
        assert (found.status_code, found.content) == (200, b""), path
    assert served.client.get("//").status_code == 200


def test_all_bodies_together_have_a_limit(translating: list[ServedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "MAX_BYTES", 2000)
    with serving(translating[:1]) as small:
        with socket.create_connection(("127.0.0.1", small.port)) as waiting_client:
            waiting_client.sendall(HEAD + b"Content-Length: 1600\r\n\r\n" + b" " * 1500)
            until(lambda: small.service.readiness.bodies.total == 1500)
            found = small.post("/translate", **ASKED, x="x" * 500)
            assert (found.status_code, found.json()) == (429, {"error": "Slowdown: too many bodies at once"})
        until(lambda: small.service.readiness.bodies.total == 0)
        assert small.post("/translate", **ASKED, x="x" * 500).status_code == 200


def test_a_head_that_does_not_end_is_not_read_on(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b"X-More: " + b"x" * 8000 + b"\r\n"
    assert raw(served.port, HEAD, *[line] * 20) == b""
    assert raw(served.port, HEAD + line * 20 + b"Content-Length: 0\r\n\r\n").startswith(
        b"HTTP/1.1 431 "
    )  # in one piece
    monkeypatch.setattr(protocol, "MAX_HEAD_SECONDS", 0.2)
    assert raw(served.port, HEAD) == b""
    assert raw(served.port) == b""
    assert served.client.get("/health").status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(translating: list[ServedRun]) -> None:
    with serving(translating[:1], timeout=0.3) as hasty:
        assert raw(hasty.port, HEAD + b"Content-Length: 50\r\n\r\n{").startswith(b"HTTP/1.1 408 ")


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    model, runs = slow_translator()
    with serving(runs, timeout=0.3) as hasty:
        found = hasty.post("/translate", **ASKED)
        assert (found.status_code, found.json()) == (504, {"error": "Timeout: no answer within 0.3 seconds"})
        model.gate.set()


def test_our_own_failures_are_said_without_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    model, runs = slow_translator()
    model.gate.set()
    model.predict_best = None  # type: ignore[assignment, method-assign]
    with serving(runs) as failing:
        found = failing.post("/translate", **{**ASKED, "q": "a secret"})
        assert (found.status_code, found.json()) == (500, {"error": "Internal error"})
        assert found.headers["x-content-type-options"] == "nosniff"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    failure = next(line for line in lines if line["event"] == "failure")
    assert failure["error"] == "TypeError"
    assert any("work.py:" in place for place in failure["where"])
    assert "secret" not in str(lines)


def test_too_many_are_told_to_come_again() -> None:
    model, runs = slow_translator()
    with serving(runs, max_queue=4) as busy:  # one client holds half of it
        threads = [threading.Thread(target=busy.post, args=("/translate",), kwargs=ASKED) for _ in range(3)]
        threads[0].start()
        assert model.begun.wait(30)
        for thread in threads[1:]:
            thread.start()
        until(lambda: waiting(busy) == 2)
        found = busy.post("/translate", **ASKED)
        assert found.status_code == 429
        assert found.json() == {"error": "Slowdown: too many texts are waiting"}
        assert int(found.headers["retry-after"]) >= 1
        model.gate.set()
        for thread in threads:
            thread.join(30)
        assert len(model.seen) == 3


def test_who_leaves_takes_the_work_along() -> None:
    model, runs = slow_translator()
    with serving(runs) as left:
        first = threading.Thread(target=left.post, args=("/translate",), kwargs={**ASKED, "q": "first"})
        first.start()
        assert model.begun.wait(30)
        body = json.dumps({**ASKED, "q": "never mind"}).encode()
        with socket.create_connection(("127.0.0.1", left.port)) as connection:
            connection.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: waiting(left) == 1)
        until(lambda: waiting(left) == 0)
        model.gate.set()
        first.join(30)
        assert model.seen == ["first"]
        assert left.client.get("/health").status_code == 200


def waiting(server: Serving) -> int:
    return sum(model.batcher.num_waiting for model in server.service.models.models.values())
