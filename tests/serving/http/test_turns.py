"""Requests of an address that sends many begin a few at a time; others come between."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import pytest

from saccade.serving.http import turns as turns_module
from saccade.serving.http.lifetimes import OpenRequest, Readiness
from saccade.serving.http.turns import AT_ONCE, Account, AccountedWork, Turns, run_in_thread
from saccade.serving.models import ServedRun
from servers import serving


def run(test: Callable[[Turns, list[str]], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(Turns(0.002), []), 30))


def begin(turns: Turns, begun: list[str], address: str, seconds: float = 0.001) -> None:
    def note() -> None:
        turns.charge(address, seconds)
        begun.append(address)

    turns.take(address, note)


async def rounds(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_who_sends_one_begins_at_once_and_who_sends_many_a_few_in_a_round() -> None:
    async def test(turns: Turns, begun: list[str]) -> None:
        for _ in range(100):
            begin(turns, begun, "many")
        assert begun == ["many"]
        await rounds(2)
        assert len(begun) <= 3 * AT_ONCE
        assert turns.num_waiting == 100 - len(begun)
        begin(turns, begun, "one")
        assert begun[-1] == "one"
        while turns.num_waiting:
            await asyncio.sleep(0.001)
        assert begun.count("many") == 100

    run(test)


def test_connections_that_were_cut_off_are_nobody_else() -> None:
    async def test(turns: Turns, begun: list[str]) -> None:
        for address in ("one", "", "one"):
            begin(turns, begun, address)
            await rounds(2)
            assert not turns.is_shared
        assert begun == ["one", "", "one"]
        begin(turns, begun, "other")
        assert turns.is_shared

    run(test)


def test_a_line_rests_while_others_ask_and_only_then() -> None:
    async def test(turns: Turns, begun: list[str]) -> None:
        for _ in range(40):
            begin(turns, begun, "many")
        await rounds(20)
        assert len(begun) == 40  # alone: nothing is counted
        begin(turns, begun, "one")
        for _ in range(40):
            begin(turns, begun, "many")
        await rounds(50)
        assert turns.num_waiting > 30
        begin(turns, begun, "one")
        assert begun[-1] == "one"  # who has not taken its share doesn't wait
        started = time.monotonic()
        while turns.num_waiting:
            await asyncio.sleep(0.001)
        assert time.monotonic() - started > 0.1  # 30 requests of a millisecond, at a fifth of the time

    run(test)


def test_who_has_taken_too_much_begins_nothing_though_it_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(turns: Turns, begun: list[str]) -> None:
        for address in ("one", "other"):
            begin(turns, begun, address)
        begin(turns, begun, "greedy", seconds=0.03)
        await rounds(3)
        begin(turns, begun, "greedy")
        assert (begun.count("greedy"), turns.num_waiting) == (1, 1)
        assert turns.rest_of("greedy") == pytest.approx(0.028 / turns_module.SHARE, abs=0.02)
        assert turns.rest_of("one") == 0
        monkeypatch.setattr(turns, "_shared_until", 0.0)
        assert turns.rest_of("greedy") == 0  # the others have gone

    run(test)


def test_steps_of_a_request_and_its_threads_are_paid_for_by_its_address() -> None:
    def work(seconds: float) -> str:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        return "done"

    async def request(found: list[str]) -> None:
        work(0.02)
        await asyncio.sleep(0.001)
        found.append(await run_in_thread(work, 0.03))
        with pytest.raises(ZeroDivisionError):
            await run_in_thread(lambda: 1 / 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        found.append("last")

    async def test(turns: Turns, begun: list[str]) -> None:
        for address in ("one", "other"):
            begin(turns, begun, address)
        found = list[str]()
        started = time.monotonic()
        await asyncio.create_task(_call(AccountedWork(request(found), Account(turns, "greedy"))))
        assert found == ["done", "last"]
        assert time.monotonic() - started > 0.03 / turns_module.SHARE  # it rested before the second thing
        assert turns.rest_of("one") == 0
        leaving = asyncio.create_task(_call(AccountedWork(asyncio.sleep(60), Account(turns, "greedy"))))
        await rounds(3)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving

    run(test)


async def _call(work: AccountedWork) -> None:
    await work


def test_lines_that_have_ended_are_forgotten() -> None:
    async def test(turns: Turns, begun: list[str]) -> None:
        for number in range(1000):
            begin(turns, begun, f"{number}")
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
    first, *requests, last, untrusted = asked  # connections have lines of their own
    assert (first, last, untrusted) == ("127.0.0.1", "127.0.0.2", "127.0.0.2")
    assert requests == ["127.0.0.1", "203.0.113.7", "203.0.113.9"]


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


def test_requests_that_are_late_together_end_in_turn() -> None:
    """One that asks beside them sees at most a few end between two rounds of the event loop."""

    async def test(turns: Turns, ended: list[str]) -> None:
        readiness = Readiness()

        async def wait(*_: Any) -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                ended.append(str(message["status"]))

        async def open_one(scope: dict[str, Any]) -> None:
            asked = OpenRequest(wait, readiness, client="many", max_body=9, max_values=9, timeout=0.05)
            await asked.run(scope, wait, send)

        scope = {"type": "http", "method": "POST", "path": "/translate", "headers": []}
        tasks = [asyncio.ensure_future(hold(open_one(scope), Account(turns, "many"))) for _ in range(100)]
        await asyncio.sleep(0)
        time.sleep(0.06)  # so that all of them are late in the same round
        seen = [0]
        while len(ended) < 100:
            await asyncio.sleep(0)
            seen.append(len(ended))
        assert max(later - earlier for earlier, later in itertools.pairwise(seen)) <= 2 * AT_ONCE
        await asyncio.gather(*tasks)
        assert {*ended} == {"408"}
        assert not readiness.open

    run(test)


async def hold(work: Coroutine[Any, Any, None], account: Account) -> None:
    await AccountedWork(work, account)
