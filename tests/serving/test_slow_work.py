"""Slow work computes in slices: quick work goes first, slow work goes on, and what nobody waits for ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from saccade.decoding.slices import pause, tick_of
from saccade.serving import batcher as batcher_module
from saccade.serving.batcher import Batcher, QueueClosed
from saccade.serving.waiting import ModelCall

SLOW, QUICK = 10_000, 1  # costs


class Model:
    """Answers after as many steps as an item says; `steps` are those that were taken, and `busy` who computes."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.busy = threading.Lock()
        self.seconds = 0.001

    def run(self, items: list[tuple[str, int]]) -> list[str]:
        tick = tick_of(range(len(items)))
        left = dict(items)
        while any(left.values()):
            assert self.busy.acquire(blocking=False)  # nobody else computes
            time.sleep(self.seconds)
            self.steps += [name for name in left if left[name]]
            left = {name: max(0, count - 1) for name, count in left.items()}
            self.busy.release()
            if tick is not None and (wanted := tick()) is not None:
                names = [name for (name, _), is_wanted in zip(items, wanted, strict=True) if not is_wanted]
                left |= dict.fromkeys(names, 0)
        return [name.upper() for name, _ in items]


STEPS = ModelCall(lambda model, items: model.run(items))


def ask(batcher: Batcher, name: str, count: int, cost: int, client: str = "") -> asyncio.Task[list[Any]]:
    return asyncio.create_task(batcher.submit(STEPS, [(name, count)], client=client or name, costs=[cost]))


def run(test: Callable[[Model, Batcher], Coroutine[Any, Any, None]], **options: Any) -> None:
    model = Model()
    batcher = Batcher(model, wait=0.0, **options)
    batcher.start()
    try:
        asyncio.run(asyncio.wait_for(test(model, batcher), 30))
    finally:
        batcher.close()
        assert batcher.join(10)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_quick_work_goes_before_slow_work_that_has_begun() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        slow = ask(batcher, "slow", 300, SLOW)
        await until(lambda: len(model.steps) > 3)
        for number in range(5):
            assert await ask(batcher, f"quick {number}", 3, QUICK) == [f"QUICK {number}"]
        assert not slow.done()
        assert await slow == ["SLOW"]
        assert model.steps.count("slow") == 300

    run(test)


def test_slow_work_goes_on_while_quick_work_never_ends() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        slow = ask(batcher, "slow", 40, SLOW)

        async def client(name: str) -> None:
            while not slow.done():
                await ask(batcher, name, 4, QUICK)

        await asyncio.gather(*(client(f"quick {number}") for number in range(3)))
        assert await slow == ["SLOW"]
        assert model.steps.count("slow") < len(model.steps) / 2

    run(test)


def test_slow_clients_take_turns_and_one_has_no_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "SLICE", 0.005)

    async def test(model: Model, batcher: Batcher) -> None:
        greedy = [ask(batcher, f"greedy {number}", 150, SLOW, client="greedy") for number in range(6)]
        await until(lambda: len(model.steps) > 3)
        assert await ask(batcher, "modest", 30, SLOW) == ["MODEST"]
        assert not any(task.done() for task in greedy)
        assert {name for name in model.steps if name != "modest"} == {"greedy 0"}
        for task in greedy:
            task.cancel()

    run(test)


def test_what_nobody_waits_for_ends_and_the_rest_of_its_batch_goes_on() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        holder = ask(batcher, "holder", 30, SLOW)
        await until(lambda: len(model.steps) > 3)
        leaving, staying = ask(batcher, "leaving", 100_000, SLOW), ask(batcher, "staying", 30, SLOW)
        await until(lambda: "leaving" in model.steps)
        leaving.cancel()
        assert await staying == ["STAYING"]
        assert await holder == ["HOLDER"]
        alone = ask(batcher, "alone", 100_000, SLOW)
        await until(lambda: "alone" in model.steps)
        alone.cancel()
        assert await ask(batcher, "last", 1, SLOW) == ["LAST"]  # else the threads could not be joined

    run(test)


def test_quick_work_that_is_slow_after_all_is_left() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        wrong = ask(batcher, "wrong", 400, QUICK)
        await until(lambda: len(model.steps) > 3)
        assert await ask(batcher, "quick", 1, QUICK) == ["QUICK"]
        assert not wrong.done()
        assert await wrong == ["WRONG"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batcher_module, "QUICK_SECONDS", 0.01)
        run(test)


def test_who_asks_for_much_quick_work_lets_others_go_first() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        assert await ask(batcher, "first", 1, QUICK) == ["FIRST"]  # so that the greedy one is not alone
        many = 2 + int(batcher_module.QUICK_AT_ONCE * batcher_module.FIRST_RATE / 100)
        greedy = [ask(batcher, f"greedy {number}", 300, 100, client="greedy") for number in range(many)]
        await until(lambda: len(model.steps) > 3)
        assert await ask(batcher, "modest", 3, QUICK) == ["MODEST"]
        assert not all(task.done() for task in greedy)
        for task in greedy:
            task.cancel()

    run(test)


def test_slow_batches_are_small_while_others_ask() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        many = [(f"greedy {number}", 9) for number in range(200)]
        assert await batcher.submit(STEPS, many[:1], client="greedy", costs=[600]) == ["GREEDY 0"]
        batcher._rates[True] = 100_000.0  # of cost a second: of a tenth of it, a client has a quarter
        assert await ask(batcher, "modest", 3, QUICK) == ["MODEST"]  # so that the greedy one is not alone
        model.steps.clear()
        greedy = asyncio.create_task(batcher.submit(STEPS, many, client="greedy", costs=[1000] * 200))
        await until(lambda: len(model.steps) > 5)
        assert len(set(model.steps)) == 2
        greedy.cancel()

    run(test)


def test_when_another_one_comes_all_work_of_the_first_becomes_slow() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        items = [(f"alone {number}", 300) for number in range(5)]
        alone = asyncio.create_task(batcher.submit(STEPS, items, client="alone", costs=[500] * 5))
        await until(lambda: len(model.steps) > 10)
        later = asyncio.create_task(batcher.submit(STEPS, [("later", 9)] * 5, client="alone", costs=[500] * 5))
        await asyncio.sleep(0.01)
        assert await ask(batcher, "modest", 3, QUICK) == ["MODEST"]
        assert not alone.done()
        assert "later" not in model.steps
        await asyncio.gather(alone, later)

    run(test)


def test_who_is_alone_fills_whole_batches() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        for _ in range(3):  # more than what it might have beside others
            model.steps.clear()
            first = ask(batcher, "first", 20, QUICK, client="one")
            await until(lambda: bool(model.steps))
            others = [ask(batcher, f"{number}", 1, 60, client="one") for number in range(30)]
            await asyncio.gather(first, *others)
            assert sorted(model.steps[-30:]) == sorted(str(number) for number in range(30))
            assert model.steps.index(model.steps[-30]) == 20  # one batch: a quarter of one has room for 20 at most

    run(test)


def test_a_closed_queue_ends_slow_work_when_nobody_waits_any_more() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        running, waiting = ask(batcher, "running", 100_000, SLOW), ask(batcher, "waiting", 5, SLOW, client="running")
        await until(lambda: "running" in model.steps)
        batcher.close()
        with pytest.raises(QueueClosed):
            await ask(batcher, "late", 1, QUICK)
        running.cancel()
        assert await waiting == ["WAITING"]

    run(test)


def test_a_queue_says_how_far_it_is_behind() -> None:
    async def test(model: Model, batcher: Batcher) -> None:
        assert batcher.seconds_behind == 0
        slow = ask(batcher, "slow", 200, SLOW)
        await until(lambda: len(model.steps) > 20)
        model.seconds = 0.2
        await until(lambda: batcher.seconds_behind > 0.1)
        slow.cancel()

    run(test)


def test_a_pause_outside_of_a_server_is_nothing() -> None:
    pause()
