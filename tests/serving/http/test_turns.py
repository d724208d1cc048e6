"""Requests of an address that sends many begin a few at a time; others come between."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
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


def test_a_thousand_requests_at_once_are_all_answered_and_one_of_another_address_before_most(
    translating: list[ServedRun],
) -> None:
    """Cheap ones, which need no model: what counts is the event loop."""
    with serving(translating[:1]) as server:
        left, honest = threading.Event(), list[float]()

        async def flood() -> int:
            limits = httpx.Limits(max_connections=200)
            transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2", limits=limits)
            async with httpx.AsyncClient(base_url=server.url, transport=transport, timeout=60) as client:
                found = await asyncio.gather(*(client.get("/nowhere") for _ in range(1000)))
            left.set()
            return sum(one.status_code == 404 for one in found)

        def ask() -> None:
            with httpx.Client(base_url=server.url, timeout=60) as client:
                while not left.is_set():
                    started = time.monotonic()
                    assert client.get("/health").status_code == 200
                    honest.append(time.monotonic() - started)

        asking = threading.Thread(target=ask)
        asking.start()
        assert asyncio.run(flood()) == 1000
        asking.join()
        assert len(honest) > 3
