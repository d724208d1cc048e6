"""Connections: those that are half closed or left, too many of them, and answers that nobody reads."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from saccade.serving import server as server_module
from saccade.serving.http import door, protocol
from saccade.serving.models import ServedRun
from servers import Serving, serving, slow_translator, until

HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def request(text: str = "a b c", **fields: Any) -> bytes:
    body = json.dumps({"q": text, "source": "en", "target": "fr", **fields}).encode()
    return HEAD % len(body) + body


@contextmanager
def connect(server: Serving, *, buffer: int | None = None, address: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.socket() as client:
        client.settimeout(30)
        if buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.bind((address, 0))
        client.connect(("127.0.0.1", server.port))
        yield client


def read_all(client: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            found += part
    return found


def read_on(client: socket.socket) -> None:
    while client.recv(1 << 20):
        pass


def count(server: Serving, name: str, **labels: str) -> float:
    return server.service.metrics.registry.get_sample_value(name, labels) or 0.0


def test_who_has_only_shut_the_sending_side_gets_the_answer(served: Serving) -> None:
    before = count(served, "saccade_requests_total", route="/translate", status="499")
    with connect(served) as client:
        client.sendall(request())
        client.shutdown(socket.SHUT_WR)
        found = read_all(client)
    assert found.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in found
    with connect(served) as client:  # two at once, and nothing
        client.sendall(request() + request("a"))
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).count(b"HTTP/1.1 200 ") == 2
    for begun in (b"", b"POST /translate HT", request()[:-1]):
        with connect(served) as client:
            client.sendall(begun)
            client.shutdown(socket.SHUT_WR)
            assert read_all(client) == b""
    until(lambda: count(served, "saccade_requests_total", route="/translate", status="499") == before + 1)


@pytest.mark.parametrize("way", ["close", "reset"])
def test_who_has_left_is_noticed_while_the_model_computes(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "PROBE_SECONDS", 0.02)
    model, runs = slow_translator()
    with serving(runs) as server:
        with connect(server) as client:
            client.sendall(request())
            assert model.begun.wait(30)
            if way == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: count(server, "saccade_requests_total", route="/translate", status="499") == 1)
        model.gate.set()


def test_who_leaves_while_sending_is_no_failure(served: Serving) -> None:
    before = count(served, "saccade_requests_total", route="/translate", status="499")
    with connect(served) as client:
        client.sendall(request()[:-5])
        until(lambda: served.service.readiness.bodies.total > 0)
    until(lambda: count(served, "saccade_requests_total", route="/translate", status="499") == before + 1)
    assert not count(served, "saccade_requests_total", route="/translate", status="500")


def test_of_too_many_connections_the_oldest_that_waits_for_its_client_is_closed() -> None:
    model, runs = slow_translator()
    with serving(runs, max_connections=8) as server, contextlib.ExitStack() as stack:
        busy = stack.enter_context(connect(server))
        busy.sendall(request())
        assert model.begun.wait(30)
        slow = [stack.enter_context(connect(server)) for _ in range(3)]
        for client in slow:
            client.sendall(request()[:-1])
        until(lambda: server.service.readiness.requests.total == 4)
        with connect(server) as fifth:  # one address has four at most
            fifth.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert read_all(fifth).startswith(b"HTTP/1.1 200 ")
        assert read_all(slow[0]) == b""
        with connect(server, address="127.0.0.2") as other:  # another address is not concerned
            other.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert read_all(other).startswith(b"HTTP/1.1 200 ")
        slow[1].sendall(request()[-1:])
        model.gate.set()
        assert b'{"translatedText":"A B C"}' in slow[1].recv(1 << 16)
        assert b'{"translatedText":"A B C"}' in busy.recv(1 << 16)
        assert count(server, "saccade_refusals_total", reason="connections") == 1


def test_a_connection_is_refused_if_all_others_are_busy() -> None:
    model, runs = slow_translator()
    with serving(runs, max_connections=4) as server, contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(connect(server)).sendall(request())
        until(lambda: server.service.readiness.requests.total == 2)
        with connect(server) as third:
            found = read_all(third)
        assert found.startswith(b"HTTP/1.1 503 ")
        assert found.endswith(b'{"error":"Slowdown: too many connections"}')
        model.gate.set()


def test_connections_of_an_address_are_opened_one_after_another_while_others_ask(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "OPENING_SECONDS", 0.05)  # so that each rests for 0.25 s
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(2):  # others ask
            stack.enter_context(connect(served)).sendall(ask)
            many = [stack.enter_context(connect(served, address="127.0.0.2")) for _ in range(3)]
        many += [stack.enter_context(connect(served, address="127.0.0.2")) for _ in range(6)]
        for client in many:
            client.sendall(ask)
        for client in many[-2:]:
            client.shutdown(socket.SHUT_WR)
        time.sleep(0.1)
        assert len(served.server.connections.open) < 8
        with connect(served, address="127.0.0.3") as other:
            other.sendall(ask)
            assert read_all(other).startswith(b"HTTP/1.1 200 ")
        many[-1].settimeout(0)
        with pytest.raises(BlockingIOError):
            many[-1].recv(1)
        many[-1].settimeout(30)
        assert all(read_all(client).startswith(b"HTTP/1.1 200 ") for client in many)


def test_who_finds_the_line_of_its_address_full_is_refused_and_others_come_in(
    translating: list[ServedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "OPENING_SECONDS", 0.05)  # the first that is above the allowance rests
    monkeypatch.setattr(server_module, "IN_LINE", 8)
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with serving(translating[:1], max_connections=64) as server, contextlib.ExitStack() as stack:
        with connect(server, address="127.0.0.3") as other:  # others ask
            other.sendall(ask)
            assert read_all(other).startswith(b"HTTP/1.1 200 ")
        many = [stack.enter_context(connect(server, address="127.0.0.2")) for _ in range(24)]
        found = [read_all(client) for client in many[-4:]]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in found)
        assert count(server, "saccade_refusals_total", reason="connections") >= 4
        with connect(server, address="127.0.0.3") as other:
            other.sendall(ask)
            assert read_all(other).startswith(b"HTTP/1.1 200 ")
        assert server.server.door.num_waiting


@pytest.mark.parametrize("limit", ["time", "size"])
def test_who_does_not_read_an_answer_is_cut_off(
    limit: str, translating: list[ServedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_UNREAD", 1 if limit == "size" else 1 << 40)
    with serving(translating[:1], timeout=0.5 if limit == "time" else 60) as server:
        with connect(server, buffer=4096) as client:
            client.sendall(300 * b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: count(server, "saccade_refusals_total", reason="unread") == 1)
            with pytest.raises(ConnectionResetError):
                read_on(client)
        until(lambda: not server.server.connections.open)
