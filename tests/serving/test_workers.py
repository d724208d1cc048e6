"""Slow batches are computed by other processes: quick ones go on meanwhile, and what ends a worker ends one batch."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from saccade.decoding.slices import ComputationEnded, tick_of
from saccade.errors import UserError
from saccade.serving import work
from saccade.serving.batcher import Batcher
from saccade.serving.models import ServedRun
from saccade.serving.processes import workers as workers_module
from saccade.serving.processes.workers import ModelWorkers, Worker, WorkerLost, Workers, WorkerTask, can_fork
from saccade.serving.waiting import ModelCall
from servers import serving

pytestmark = pytest.mark.skipif(not can_fork({}), reason="processes are forked on Linux alone")
SLOW, QUICK = 10_000, 1  # costs


def double(model: int, items: list[int]) -> list[tuple[int, int]]:
    """Twice the items, and the process that says so."""
    return [(model * item, os.getpid()) for item in items]


def wait(model: int, items: list[str]) -> list[str]:
    """Wait until files are there; the model has nothing to do with it."""
    del model
    tick = tick_of(range(len(items)))
    assert tick is not None
    wanted = tick()
    while not all(map(os.path.exists, items)):
        time.sleep(0.001)
        wanted = tick() or wanted
    return [f"{wanted}"]


def sleep(model: int, items: list[float]) -> list[str]:
    """Sleep, and listen to nobody."""
    del model
    time.sleep(sum(items))
    return ["slept" for _ in items]


def fail(model: int, items: list[str]) -> list[str]:
    del model
    if items[0] == "end":
        os.kill(os.getpid(), signal.SIGKILL)
    raise UserError(items[0])


DOUBLE, WAIT, FAIL, SLEEP = ModelCall(double), ModelCall(wait), ModelCall(fail), ModelCall(sleep)


class Watcher:
    """Whoever waits, for items of which `wanted` still are."""

    def __init__(self, wanted: list[bool] | None = None) -> None:
        self.wanted = wanted

    def find_wanted(self) -> list[bool] | None:
        return self.wanted


@pytest.fixture
def workers() -> Iterator[Workers]:
    found = Workers({"two": 2, "three": 3}, (double, wait, fail, sleep))
    yield found
    found.close()


def ask(workers: Workers, model: str, call: ModelCall, items: list[Any], watcher: Watcher | None = None) -> list[Any]:
    worker = workers.hire()
    assert worker is not None
    return workers.compute(worker, WorkerTask(model, call, items), watcher or Watcher())


def test_a_worker_answers_for_each_model_again_and_again(workers: Workers) -> None:
    found = [ask(workers, name, DOUBLE, [5, 7]) for name in ("two", "three", "two")]
    assert [[value for value, _ in each] for each in found] == [[10, 14], [15, 21], [10, 14]]
    (process,) = {process for each in found for _, process in each}
    assert process != os.getpid()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, process) == min(19, own + workers_module.NICENESS)
    assert workers.num_workers == 1


def test_what_fails_is_told_and_what_ends_a_worker_ends_one_batch(workers: Workers) -> None:
    with pytest.raises(UserError, match="so it is"):
        ask(workers, "two", FAIL, ["so it is"])
    lost = list[None]()
    workers.on_lost = lambda: lost.append(None)
    with pytest.raises(WorkerLost):
        ask(workers, "two", FAIL, ["end"])
    assert (len(lost), workers.num_workers) == (1, 0)
    assert ask(workers, "two", DOUBLE, [3])[0][0] == 6


def test_what_nobody_waits_for_is_ended_and_whoever_leaves_is_told_of(workers: Workers, tmp_path: Path) -> None:
    with pytest.raises(ComputationEnded):
        ask(workers, "two", WAIT, [f"{tmp_path}/none"], Watcher([False]))
    assert workers.num_workers == 0
    watcher = Watcher([True, False])

    def find() -> list[bool] | None:
        (tmp_path / "file").touch()
        return watcher.wanted

    watcher.find_wanted = find  # type: ignore[method-assign]
    found = ask(workers, "two", WAIT, [f"{tmp_path}/file", f"{tmp_path}/file"], watcher)
    assert found in (["None"], ["[True, False]"])  # it may have ended before it was told


def test_what_is_said_of_a_task_too_late_does_not_reach_the_next(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(workers_module, "LOOK_SECONDS", 0.0)
    file = f"{tmp_path}/file"
    Path(file).touch()
    for _ in range(20):
        assert ask(workers, "two", SLEEP, [0.002, 0.002], Watcher([True, False])) == ["slept"] * 2
        assert ask(workers, "two", WAIT, [file]) == ["None"]


def test_idle_workers_end_and_without_the_process_that_forks_them_there_are_none(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((_, process),) = ask(workers, "two", DOUBLE, [3])
    workers.end_idle()
    assert workers.num_workers == 1
    monkeypatch.setattr(workers_module, "IDLE_SECONDS", 0.0)
    workers.end_idle()
    assert workers.num_workers == 0
    deadline = time.monotonic() + 30
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < deadline
    workers.close()
    assert workers.hire() is None


def run(test: Callable[[Batcher], Coroutine[Any, Any, None]], workers: Workers) -> None:
    batcher = Batcher(2, wait=0.0, workers=ModelWorkers(workers, "two"))
    batcher.start()
    try:
        asyncio.run(asyncio.wait_for(test(batcher), 30))
    finally:
        batcher.close()
        assert batcher.join(10)


def test_quick_batches_are_computed_here_while_a_worker_computes_a_slow_one(workers: Workers, tmp_path: Path) -> None:
    async def test(batcher: Batcher) -> None:
        file = tmp_path / "file"
        slow = asyncio.create_task(batcher.submit(WAIT, [str(file)], client="slow", costs=[SLOW]))
        while not workers.num_workers:
            await asyncio.sleep(0.001)
        for number in range(5):  # they take no step of the slow one, which takes none by itself
            found = await batcher.submit(DOUBLE, [number], client="quick", costs=[QUICK])
            assert found == [(2 * number, os.getpid())]
        other = await batcher.submit(DOUBLE, [9], client="other", costs=[SLOW])  # beside it, as another client's
        assert (other[0][0], other[0][1] == os.getpid()) == (18, False)
        assert not slow.done()
        file.touch()
        assert len(await slow) == 1
        assert batcher.seconds_behind == 0

    run(test, workers)


def test_nothing_is_computed_here_while_slow_work_waits_for_its_client_s_first(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = list[Batcher](), Batcher._next

    def note(batcher: Batcher, *given: Any, **named: Any) -> Any:
        looks.append(batcher)
        return look(batcher, *given, **named)

    monkeypatch.setattr(Batcher, "_next", note)

    async def test(batcher: Batcher) -> None:
        file = str(tmp_path / "file")
        tasks = [asyncio.create_task(batcher.submit(WAIT, [file], client="slow", costs=[SLOW])) for _ in range(3)]
        tasks += [asyncio.create_task(batcher.submit(FAIL, ["no"], client="slow", costs=[SLOW]))]  # of another kind
        while not workers.num_workers:
            await asyncio.sleep(0.001)
        await batcher.submit(DOUBLE, [1], client="quick", costs=[QUICK])
        looks.clear()
        await asyncio.sleep(0.2)
        assert len(looks) < 10  # what can't begin is not looked at again and again
        Path(file).touch()
        assert all(len(found) == 1 for found in await asyncio.gather(*tasks[:3]))
        with pytest.raises(UserError):
            await tasks[3]

    run(test, workers)


def test_who_leaves_takes_the_worker_along_and_a_lost_one_fails_its_own_batch(workers: Workers, tmp_path: Path) -> None:
    async def test(batcher: Batcher) -> None:
        slow = asyncio.create_task(batcher.submit(WAIT, [f"{tmp_path}/none"], client="slow", costs=[SLOW]))
        while not workers.num_workers:
            await asyncio.sleep(0.001)
        slow.cancel()
        while workers.num_workers:
            await asyncio.sleep(0.001)
        with pytest.raises(WorkerLost):
            await batcher.submit(FAIL, ["end"], client="slow", costs=[SLOW])
        assert (await batcher.submit(DOUBLE, [1], client="slow", costs=[SLOW]))[0][0] == 2
        workers.close()
        assert await batcher.submit(DOUBLE, [1], client="slow", costs=[SLOW]) == [(2, os.getpid())]  # as without them

    run(test, workers)


def test_when_the_process_that_forks_workers_is_killed_slow_work_is_done_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(psutil.Process().children())
    workers = Workers({"two": 2}, (double, wait))
    (forking,) = set(psutil.Process().children()) - before

    async def test(batcher: Batcher) -> None:
        slow = asyncio.create_task(batcher.submit(WAIT, [f"{tmp_path}/none"], client="slow", costs=[SLOW]))
        assert await batcher.submit(DOUBLE, [1], client="other", costs=[SLOW])
        forking.kill()
        with pytest.raises(WorkerLost):  # workers end with it
            await slow
        while workers.is_open:
            with contextlib.suppress(WorkerLost):  # an idle one that had not ended yet
                await batcher.submit(DOUBLE, [1], client="other", costs=[SLOW])
        for number in range(3):
            found = await batcher.submit(DOUBLE, [number], client="other", costs=[SLOW])
            assert found == [(2 * number, os.getpid())]
        assert workers.num_workers == 0
        said = "the process that forks workers has ended: slow work is computed in slices"
        assert sum(record.message.startswith(said) for record in caplog.records) == 1

    run(test, workers)
    workers.close()


def test_a_worker_that_ended_before_it_began_is_lost(workers: Workers) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    workers.num_workers += 1
    with pytest.raises(WorkerLost):
        workers.compute(Worker(ours), WorkerTask("two", DOUBLE, [1]), Watcher())
    assert workers.num_workers == 0


def test_answers_of_workers_are_those_of_the_server(
    translating: list[ServedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, dict[str, Any]] = {
        "/v1/look": {"text": "a b c", "kinds": ["cross"], "views": ["flow"]},
        "/translate": {"q": "<p><b>a b</b> c. d <i>e</i></p>" * 40, "source": "en", "target": "fr", "format": "html"},
        "/translate?": {"q": "<p><b>a<i>b</b>c</i></p>" * 60, "source": "en", "target": "fr", "format": "html"},
        "/v1/translate": {"q": "a b c d " * 20, "alignment": True},
    }
    with serving(translating[:1]) as server:
        here = {path: server.post(path, **body) for path, body in asked.items()}
    models = {run.name: run.predictor for run in translating[:1]}
    assert can_fork(models)
    workers = Workers(models, work.FOR_WORKERS)
    monkeypatch.setattr("saccade.serving.waiting.SLOW_RANK", 0)  # all work is slow
    with serving(translating[:1], workers=workers) as server:
        beside = {path: server.post(path, **body) for path, body in asked.items()}
        text = server.client.get("/metrics").text
    workers.close()
    for path, answer in here.items():
        assert answer.status_code == 200
        assert beside[path].json() == answer.json()
    assert "saccade_worker_seconds_total 0.0" not in text
    assert "saccade_workers 0.0" not in text
