"""Requests answered together: nobody's answer is lost, swapped, or waited for longer than it must be."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from saccade.serving import batcher as batcher_module
from saccade.serving.batcher import Batcher, QueueClosed, QueueFull
from saccade.serving.waiting import ModelCall


class Model:
    """Answers with the item doubled; `gate` holds it up, `batches` are what it saw."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.batches: list[list[Any]] = []


def double(model: Model, items: list[int], *, plus: int = 0) -> list[int]:
    model.begun.set()
    assert model.gate.wait(30)
    model.batches.append(items)
    if -1 in items:
        raise ValueError("minus one")
    return [2 * item + plus for item in items]


PLAIN, MORE = ModelCall(double), ModelCall(double, (("plus", 1),))


def with_batcher(test: Callable[[Model, Batcher], Coroutine[Any, Any, None]], **options: Any) -> None:
    model = Model()
    batcher = Batcher(model, **options)
    batcher.start()
    try:
        asyncio.run(asyncio.wait_for(test(model, batcher), 30))
    finally:
        model.gate.set()
        batcher.close()
        batcher.join(30)


async def busy(model: Model, batcher: Batcher) -> asyncio.Task[list[Any]]:
    """A request that holds the model up until the gate opens."""
    model.gate.clear()
    first = asyncio.create_task(batcher.submit(PLAIN, [0]))
    await asyncio.to_thread(model.begun.wait, 30)
    return first


async def settled() -> None:
    """Tasks that were just created have left their tickets."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_many_requests_of_many_sizes_get_their_own_answers() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        chance = random.Random(1)
        asked = [[chance.randrange(1000) for _ in range(chance.randrange(12))] for _ in range(200)]
        works = [chance.choice((PLAIN, MORE)) for _ in asked]
        found = await asyncio.gather(*(batcher.submit(*one) for one in zip(works, asked, strict=True)))
        for items, work, answers in zip(asked, works, found, strict=True):
            assert answers == [2 * item + (work is MORE) for item in items]
        assert len(model.batches) < 100

    with_batcher(test, max_queue=10_000)


def test_equal_work_is_done_together_and_other_work_is_not() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        first = await busy(model, batcher)
        tasks = [asyncio.create_task(batcher.submit(MORE if item % 2 else PLAIN, [item])) for item in range(1, 7)]
        await settled()
        model.gate.set()
        await asyncio.gather(first, *tasks)
        assert model.batches == [[0], [1, 3, 5], [2, 4, 6]]

    with_batcher(test)


def test_a_long_request_does_not_hold_up_a_short_one() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        first = await busy(model, batcher)
        long = asyncio.create_task(batcher.submit(PLAIN, range(100, 110)))
        await settled()
        short = asyncio.create_task(batcher.submit(PLAIN, [7]))
        await settled()
        model.gate.set()
        await asyncio.gather(first, long, short)
        assert model.batches[1] == [100, 7, 101]
        assert long.result() == [2 * item for item in range(100, 110)]

    with_batcher(test, max_items=3)


def test_a_full_queue_refuses_and_says_when_to_come_again() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        first = await busy(model, batcher)
        waiting = asyncio.create_task(batcher.submit(PLAIN, range(5)))
        await settled()
        with pytest.raises(QueueFull) as refused:
            await batcher.submit(PLAIN, [1])
        assert refused.value.retry_after >= 1
        assert batcher.num_waiting == 5
        model.gate.set()
        await asyncio.gather(first, waiting)
        assert await batcher.submit(PLAIN, range(9)) == [2 * item for item in range(9)]  # nobody else waits

    with_batcher(test, max_queue=5)


def test_who_leaves_takes_along_what_has_not_begun() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        first = await busy(model, batcher)
        leaving, staying = (asyncio.create_task(batcher.submit(PLAIN, [item])) for item in (5, 6))
        await settled()
        leaving.cancel()
        await settled()
        assert batcher.num_waiting == 1
        model.gate.set()
        assert await staying == [12]
        await first
        assert model.batches == [[0], [6]]

    with_batcher(test)


def test_what_fails_fails_alone() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        first = await busy(model, batcher)
        good, bad = (asyncio.create_task(batcher.submit(PLAIN, items)) for items in ([1, 2], [3, -1]))
        await settled()
        model.gate.set()
        assert await good == [2, 4]
        with pytest.raises(ValueError, match="minus one"):
            await bad
        await first

    with_batcher(test)


def test_a_closed_queue_answers_what_waits_and_takes_nothing_new() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        first = await busy(model, batcher)
        waiting = asyncio.create_task(batcher.submit(PLAIN, [1, 2]))
        await settled()
        batcher.close()
        with pytest.raises(QueueClosed):
            await batcher.submit(PLAIN, [3])
        model.gate.set()
        assert await first == [0]
        assert await waiting == [2, 4]

    with_batcher(test)


def test_a_first_request_waits_a_moment_for_others() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        first = asyncio.create_task(batcher.submit(PLAIN, [1]))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(batcher.submit(PLAIN, [2]))
        await asyncio.gather(first, second)
        assert model.batches == [[1, 2]]

    with_batcher(test, wait=1.0)


def test_batches_hold_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        first = await busy(model, batcher)
        costs = [60, 40, 3000, 9, 2900, 9000]  # of six requests; a batch may have 5,000 at first
        calls = [batcher.submit(ModelCall(lengths), ["x"], costs=[cost]) for cost in costs]
        tasks = [asyncio.create_task(call) for call in calls]
        await settled()
        model.gate.set()
        await asyncio.gather(first, *tasks)
        assert sorted(len(batch) for batch in model.batches) == [1, 1, 1, 1, 3]  # those that are quick together

    monkeypatch.setattr(batcher_module, "FIRST_RATE", 10_000)
    with_batcher(test)


def test_pictures_count_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "MAX_BYTES", 1_000_000)
    pictures = [np.full((700, 1000), number, np.uint8) for number in range(2)]

    async def test(model: Model, batcher: Batcher) -> None:
        first = await busy(model, batcher)
        waiting = asyncio.create_task(batcher.submit(ModelCall(lengths), [pictures[0]]))
        await settled()
        with pytest.raises(QueueFull):
            await batcher.submit(ModelCall(lengths), [pictures[1]], client="another")
        small = [np.zeros((8, 8), np.uint8) for _ in range(4)]
        together = asyncio.create_task(batcher.submit(ModelCall(lengths), small, client="another"))
        await settled()
        model.gate.set()
        await asyncio.gather(first, waiting, together)
        assert [len(batch) for batch in model.batches] == [1, 1, 4]  # the large one fills a batch
        assert await batcher.submit(ModelCall(lengths), [pictures[1]]) == [700]

    with_batcher(test)


def lengths(model: Model, items: list[str]) -> list[int]:
    model.batches.append(items)
    return [len(item) for item in items]
