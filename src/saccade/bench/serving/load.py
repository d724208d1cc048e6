"""`saccade serve` under load: many clients that check their answers, and the server's memory."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from saccade.bench.serving.fuzzing import FuzzReport, fuzz
from saccade.bench.serving.http_client import Connection, Reply, RunningServer, start_server
from saccade.bench.serving.team import kill_one, measure_memory, read_losses
from saccade.data.text.corpus import read_lines
from saccade.errors import UserError
from saccade.export.choice import AUTO, EngineChoice
from saccade.runs import config as config_file
from saccade.serving.models import LanguagePair, load_runs
from saccade.tasks.translate import corpora
from saccade.tasks.translate.predictor import Translator

BUSY, FINE, GONE = 429, 200, 503
MOST_TEXTS = 1000
ROUNDS = 10  # in which memory is measured
PATIENCE = 60.0  # seconds for an answer
RETRY = 0.1  # seconds
Say = Callable[[str], None]


@final
@dataclass
class LoadCounts:
    """Times and statuses of answers; a `swapped` answer belongs to another text, a `wrong` one to no text."""

    seconds: list[float]
    statuses: Counter[int]
    num_swapped: int = 0
    num_wrong: int = 0
    num_lost: int = 0
    elapsed: float = 0.0

    @property
    def rate(self) -> float:
        return self.statuses[FINE] / self.elapsed

    def percentile(self, share: float) -> float:
        """Return the time in seconds within which this share of the answers came."""
        ranked = sorted(self.seconds)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "answers": self.statuses[FINE],
            "refused": self.statuses[BUSY],
            "errors": sum(self.statuses.values()) - self.statuses[FINE] - self.statuses[BUSY],
            "unavailable": self.statuses[GONE],
            "swapped": self.num_swapped,
            "wrong": self.num_wrong,
            "lost": self.num_lost,
            "seconds": self.elapsed,
            "rate": self.rate,
            "p50": self.percentile(0.5),
            "p99": self.percentile(0.99),
        }


class LoadReport(NamedTuple):
    """Results for one client, for many clients, and the server's memory (MiB) by the number of requests.

    With several processes also what the server says was lost.
    """

    alone: LoadCounts
    together: LoadCounts
    memory: list[tuple[int, float]]
    losses: Mapping[str, int] | None = None

    @property
    def gain(self) -> float:
        """The rate of many clients divided by the rate of one."""
        return self.together.rate / self.alone.rate

    def as_dict(self) -> dict[str, Any]:
        memory = [{"requests": count, "mebibytes": size} for count, size in self.memory]
        found = {"alone": self.alone.as_dict(), "together": self.together.as_dict(), "gain": self.gain}
        return {**found, "memory": memory, "losses": self.losses}


@final
class Clients:
    """Clients of a server, each with its own connection; their questions are drawn with a seed.

    Clients that `are_apart` come from addresses of their own.
    """

    def __init__(
        self, where: RunningServer, right: Mapping[str, str], pair: LanguagePair, *, are_apart: bool = False
    ) -> None:
        self.where, self.right, self.are_apart = where, right, are_apart
        self.others = set(right.values())
        ask = pair._asdict()
        self.bodies = [(text, json.dumps({"q": text, **ask}).encode()) for text in right]

    async def run(self, count: int, *, until: Callable[[], bool], seed: int = 1, pause: float = 0.0) -> LoadCounts:
        """Run `count` clients, each of which sends one question after another until `until` returns True.

        Between an answer and the next question they pause so many seconds, in the mean.
        """
        tally, started = LoadCounts([], Counter()), time.perf_counter()
        await asyncio.gather(
            *(self._client(number, f"{seed} {number}", tally, until, pause) for number in range(count))
        )
        tally.elapsed = time.perf_counter() - started
        return tally

    async def _client(self, number: int, seed: str, tally: LoadCounts, until: Callable[[], bool], pause: float) -> None:
        chance = random.Random(seed)
        connection: Connection | None = None
        while not until():
            await asyncio.sleep(pause * 2 * chance.random())
            text, body = chance.choice(self.bodies)
            started = time.perf_counter()
            try:
                async with asyncio.timeout(PATIENCE):
                    connection = connection or await self._open(number)
                    reply = await connection.post("/translate", body)
            except (OSError, asyncio.IncompleteReadError):
                tally.num_lost += 1
                if connection is not None:
                    connection.close()
                connection = None
                await asyncio.sleep(RETRY)
                continue
            self.count(tally, text, reply, time.perf_counter() - started)
            if reply.status in (BUSY, GONE):
                await asyncio.sleep(RETRY)
            if reply.status == GONE:  # which closes its connection
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    async def _open(self, number: int) -> Connection:
        address = f"127.0.{1 + number // 250}.{1 + number % 250}" if self.are_apart else None
        return await Connection.open(self.where.host, self.where.port, address=address)

    def count(self, tally: LoadCounts, text: str, reply: Reply, seconds: float) -> None:
        """Add a reply to the tally, and check its translation."""
        tally.statuses[reply.status] += 1
        if reply.status != FINE:
            return
        tally.seconds.append(seconds)
        found = json.loads(reply.body)["translatedText"]
        if found != self.right[text]:
            tally.num_swapped += found in self.others
            tally.num_wrong += found not in self.others


@final
@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """The run, texts and durations of a load benchmark; with `num_requests` 0, memory is not measured.

    Clients pause so many seconds before each request, in the mean. With `kill`, one of several processes is killed in
    the middle of the load.
    """

    run: Path
    texts: Path | None = None
    clients: int = 200
    seconds: float = 60.0
    alone_seconds: float = 20.0
    num_requests: int = 50_000
    pause: float = 0.0
    processes: int = 1
    kill: bool = False
    options: Sequence[str] = ()
    engine: EngineChoice = AUTO

    def __post_init__(self) -> None:
        if self.kill and self.processes == 1:
            raise UserError("--kill: given with --processes 1; who would go on?")

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of the server's command."""
        chosen = ["--engine", self.engine.name, "--quantization", self.engine.quantization]
        several = ["--processes", str(self.processes)] if self.processes > 1 else []
        return [str(self.run), "--quiet", *chosen, *several, *self.options]


def run(plan: LoadPlan, say: Say) -> LoadReport:
    """Start a server, measure it under load, and return the report."""
    right, pair = right_answers(plan, say)
    with (
        tempfile.TemporaryDirectory() as folder,
        start_server(*plan.arguments, log=Path(folder) / "log") as where,
    ):
        return asyncio.run(_measure(plan, Clients(where, right, pair), say))


def fuzz_runs(runs: Sequence[Path], count: int, say: Callable[[int], None]) -> FuzzReport:
    """Start a server with these runs and send it fuzzed requests; `say` is told how many were sent."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_server(
            *map(str, runs), "--quiet", "--suggestions", f"{folder}/better", log=Path(folder) / "log"
        ) as where,
    ):
        return asyncio.run(fuzz(where, count, say=say))


async def _measure(plan: LoadPlan, clients: Clients, say: Say) -> LoadReport:
    await clients.run(plan.clients, until=make_deadline(2))  # warm
    say(f"one request at a time, {plan.alone_seconds:g} s")
    alone = await clients.run(1, until=make_deadline(plan.alone_seconds))
    say(f"{plan.clients} clients, {plan.seconds:g} s")
    together, _ = await asyncio.gather(
        clients.run(plan.clients, until=make_deadline(plan.seconds), seed=2),
        kill_one(clients.where, plan.seconds / 2) if plan.kill else asyncio.sleep(0),
    )
    memory = [(0, measure_memory(clients.where))] if plan.num_requests else []
    for number in range(1, ROUNDS + 1) if plan.num_requests else ():
        part = plan.num_requests // ROUNDS
        await clients.run(plan.clients, until=_first(part), seed=2 + number)
        memory.append((number * part, measure_memory(clients.where)))
        say(f"{number * part:,} requests more: {memory[-1][1]:.0f} MiB")
    losses = await asyncio.to_thread(read_losses, clients.where) if plan.processes > 1 else None
    return LoadReport(alone, together, memory, losses)


def right_answers(plan: LoadPlan, say: Say) -> tuple[dict[str, str], LanguagePair]:
    """Translate distinct texts offline; return them with their translations, and the languages."""
    (loaded,) = load_runs([plan.run], engine=plan.engine)
    if not isinstance(loaded.predictor, Translator) or loaded.pair is None:
        raise UserError(f"{plan.run}: it doesn't translate; the load is of a translator")
    texts = list(itertools.islice(dict.fromkeys(filter(None, _lines(plan))), MOST_TEXTS))
    say(f"{len(texts):,} texts, translated offline")
    outputs = loaded.predictor.predict(texts)
    return {text: found.text for text, found in zip(texts, outputs, strict=True)}, loaded.pair


def _lines(plan: LoadPlan) -> Iterator[str]:
    if plan.texts is not None:
        return read_lines(plan.texts)
    config = config_file.load_config(plan.run / "config.yaml")
    held_out = corpora.held_out_corpora(config, "data.test" if config.data.test else "data.valid")
    return (pair.source for corpus in held_out for pair in corpus.pairs())


def make_deadline(seconds: float) -> Callable[[], bool]:
    """Return a function that returns True once so many seconds have passed."""
    stop = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= stop


def _first(count: int) -> Callable[[], bool]:
    """Return a function that returns True after `count` calls."""
    calls = itertools.count(1)
    return lambda: next(calls) > count
