"""Who waits is served fairly, and only with what costs about the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from saccade.serving import shares
from saccade.serving.shares import Allowance, FairShare
from saccade.serving.waiting import FairQueue, ModelCall, Part, Row, Ticket

CALL = ModelCall(lambda model, items: [(model, item) for item in items])
OTHER = ModelCall(lambda model, items: [(model, item) for item in items], (("a", 1),))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def parts(loop: asyncio.AbstractEventLoop, client: str, costs: list[int], call: ModelCall = CALL) -> list[Part]:
    ticket = Ticket(call, [f"{client}{number}" for number in range(len(costs))], client, loop.create_future())
    return list(ticket.split(costs))


def names(rows: list[Row]) -> list[str]:
    return [row.ticket.items[row.number] for row in rows]


def test_items_are_grouped_by_what_they_cost(loop: asyncio.AbstractEventLoop) -> None:
    found = parts(loop, "a", [1, 600, 127, 128, 511, 512, 2047, 2048, 3])
    assert [[number for number, _ in part.items] for part in found] == [[0, 2, 8], [1, 5, 6], [3, 4], [7]]
    assert [part.is_slow for part in found] == [False, True, False, True]
    assert [part.cost for part in found] == [131, 3159, 639, 2048]


def test_clients_share_a_batch_equally_and_each_ticket_of_a_client_too(loop: asyncio.AbstractEventLoop) -> None:
    queue = FairQueue()
    for part in (*parts(loop, "a", [10] * 30), *parts(loop, "a", [10] * 30), *parts(loop, "b", [10])):
        queue.add(part)
    assert names(queue.take(100, 160)) == ["a0", "b0", "a0", "a1", "a1"]  # 40 for a, 20 for each of its tickets
    assert queue.num_items == 56
    assert len(queue.take(100, 160)) == 4  # no more for one client: who comes next waits for the whole batch
    assert len(queue.take(3, 160)) == 3
    assert len(queue.take(100, 160, most_share=1.0)) == 16  # unless nobody else comes


def test_who_was_served_least_is_next(loop: asyncio.AbstractEventLoop) -> None:
    queue = FairQueue()
    for client, cost in (("a", 100), ("b", 20)):
        queue.add(*parts(loop, client, [cost] * 20))
    found = [names(queue.take(1, 1))[0][0] for _ in range(12)]
    assert found == ["a", "b", "b", "b", "b", "b", "a", "b", "b", "b", "b", "b"]  # ties go to the first
    queue.add(*parts(loop, "c", [100] * 5))  # who comes later doesn't get what it might have had before
    assert [names(queue.take(1, 1))[0][0] for _ in range(3)] == ["c", "a", "b"]
    assert names(queue.take(1, 1, without=("b", "c"))) == ["a3"]


def test_only_equal_calls_and_costs_share_a_batch(loop: asyncio.AbstractEventLoop) -> None:
    queue = FairQueue()
    for part in (*parts(loop, "a", [1, 300]), *parts(loop, "b", [2], OTHER), *parts(loop, "c", [300, 3])):
        queue.add(part)
    assert [names(queue.take(9, 9000)) for _ in range(3)] == [["a0", "c1"], ["b0"], ["a1", "c0"]]
    assert queue.num_items == 0
    assert not queue.has_any()


def test_a_batch_has_room_for_at_least_one_and_no_more_than_fit(loop: asyncio.AbstractEventLoop) -> None:
    queue = FairQueue()
    for client in "abc":
        queue.add(*parts(loop, client, [500]))
    assert [names(queue.take(9, most)) for most in (100, 999)] == [["a0"], ["b0"]]


def test_what_is_removed_is_forgotten(loop: asyncio.AbstractEventLoop) -> None:
    queue = FairQueue()
    (stays,), (goes,) = parts(loop, "a", [5, 5]), parts(loop, "b", [5])
    queue.add(stays)
    queue.add(goes)
    queue.remove(goes)
    assert names(queue.take(9, 100)) == ["a0", "a1"]
    queue.remove(stays)
    assert queue.num_items == 0
    assert queue.oldest == float("inf")


def test_what_is_before_one_counts_no_client_and_no_ticket_for_more_than_it(loop: asyncio.AbstractEventLoop) -> None:
    queue = FairQueue()
    queue.add(*parts(loop, "a", [100] * 50))
    queue.add(*parts(loop, "b", [30]))
    assert queue.cost_before("c", 40) == 40 + 30
    assert queue.cost_before("a", 40) == 40 + 30
    assert queue.cost_before("c", 9000) == 5000 + 30


def test_an_allowance_comes_back_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    allowance = Allowance(2.0, 0.5, clock=lambda: now)
    assert allowance.take("a", 1.5)
    assert not allowance.take("a", 0.75)  # and what is refused costs nothing
    assert allowance.take("a", 0.5)
    assert allowance.take("b", 2.0)
    assert not allowance.take("c", 2.5)
    now = 1.0
    assert not allowance.take("a", 0.75)
    assert allowance.take("a", 0.5)
    now = 100.0
    monkeypatch.setattr(shares, "FEW", 5)
    allowance._most_known = 5
    assert all(allowance.take(f"{number}", 1.0) for number in range(6))
    assert sorted(allowance._full_at) == list("012345")  # who has all of it is forgotten


def test_nobody_takes_more_than_is_left() -> None:
    share = FairShare(10)
    share.take("a", 5)
    assert not share.allows("a", 1)
    assert share.allows("b", 5)
    share.take("b", 2)
    assert not share.allows("b", 2)
    assert share.allows("c", 3)
    share.give_back("a", 5)
    share.give_back("b", 2)
    assert share.allows("a", 11)  # nobody has anything
    share.take("a", 11)  # of which half counts, and others have the other half
    assert (share.allows("a", 1), share.allows("b", 5), share.allows("b", 6)) == (False, True, False)
    share.take("b", 5)
    share.give_back("a", 8)
    assert share.allows("c", 2)
    share.give_back("a", 3)
    share.give_back("b", 5)
    assert share.allows("c", 11)
    assert not share.held
