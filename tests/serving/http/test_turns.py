"""Requests of an address that sends many begin a few at a time; others come between."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import pytest

from saccade.serving.http import turns as turns_module
from saccade.serving.http.turns import AT_ONCE, Turns
from saccade.serving.models import ServedRun
from servers import serving


class Clock:
    """Of the time that a loop has worked: each request takes a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(test: Callable[[Turns, Clock, list[str]], Coroutine[Any, Any, None]]) -> None:
    clock = Clock()
    asyncio.run(asyncio.wait_for(test(Turns(clock), clock, []), 30))


def begin(turns: Turns, clock: Clock, begun: list[str], address: str) -> None:
    def note() -> None:
        clock.now += 0.001
        begun.append(address)

    turns.take(address, note)


async def rounds(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_who_sends_one_begins_at_once_and_who_sends_many_a_few_in_a_round() -> None:
    async def test(turns: Turns, clock: Clock, begun: list[str]) -> None:
        for _ in range(100):
            begin(turns, clock, begun, "many")
        assert begun == ["many"]
        await rounds(2)
        assert len(begun) <= 3 * AT_ONCE
        assert turns.num_waiting == 100 - len(begun)
        begin(turns, clock, begun, "one")
        assert begun[-1] == "one"
        while turns.num_waiting:
            await asyncio.sleep(0.001)
        assert begun.count("many") == 100

    run(test)


def test_a_line_rests_while_others_ask_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(turns: Turns, clock: Clock, begun: list[str]) -> None:
        for _ in range(10 * AT_ONCE):
            begin(turns, clock, begun, "many")
        await rounds(20)
        assert len(begun) == 10 * AT_ONCE  # alone: one round after the other
        begin(turns, clock, begun, "one")
        for _ in range(10 * AT_ONCE):
            begin(turns, clock, begun, "many")
        await rounds(50)
        assert turns.num_waiting > 7 * AT_ONCE
        started = time.monotonic()
        while turns.num_waiting:
            await asyncio.sleep(0.001)
        assert time.monotonic() - started > 0.05  # 7 rests, each three times as long as the work before

    monkeypatch.setattr(turns_module, "LONGEST_REST", 0.02)
    run(test)


def test_lines_that_have_ended_are_forgotten() -> None:
    async def test(turns: Turns, clock: Clock, begun: list[str]) -> None:
        for number in range(1000):
            begin(turns, clock, begun, f"{number}")
        await rounds(3)
        assert (len(begun), turns.num_waiting) == (1000, 0)
        assert not turns._lines

    run(test)


def test_who_asks_through_a_proxy_has_a_line_of_its_own(
    translating: list[ServedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, take = list[str](), Turns.take

    def note(turns: Turns, address: str, begin: Callable[[], None]) -> None:
        asked.append(address)
        take(turns, address, begin)

    monkeypatch.setattr(Turns, "take", note)
    with serving(translating[:1]) as server:
        for named in ({}, {"X-Forwarded-For": "203.0.113.7"}, {"X-Forwarded-For": "198.51.100.1, 203.0.113.9"}):
            assert server.client.get("/health", headers=named).status_code == 200
        transport = httpx.HTTPTransport(local_address="127.0.0.2")  # no proxy that is trusted
        with httpx.Client(base_url=server.url, transport=transport) as client:
            client.get("/health", headers={"X-Forwarded-For": "203.0.113.7"})
    assert asked == ["127.0.0.1", "203.0.113.7", "203.0.113.9", "127.0.0.2"]


def test_many_requests_at_once_are_all_answered_and_one_of_another_address_too(translating: list[ServedRun]) -> None:
    with serving(translating[:1]) as server, ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(200)]
        for client in clients:
            client.settimeout(30)
            client.bind(("127.0.0.2", 0))
            client.connect(("127.0.0.1", server.port))
        for client in clients:
            client.sendall(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        assert server.client.get("/health").status_code == 200
        for client in clients:
            client.shutdown(socket.SHUT_WR)
        found = [b"".join(iter(partial(client.recv, 1 << 16), b"")) for client in clients]
        assert all(answers.count(b"HTTP/1.1 404 ") == 2 for answers in found)
        metrics = server.service.metrics.registry
        assert metrics.get_sample_value("saccade_requests_in_line") == 0
