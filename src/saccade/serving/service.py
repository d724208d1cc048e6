"""The parts of a server, and how routes ask a model."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

from saccade.errors import UserError, is_out_of_memory
from saccade.serving import work
from saccade.serving.batcher import QueueClosed, QueueFull
from saccade.serving.http.callers import caller_name, note_work
from saccade.serving.http.lifetimes import RETRY, Readiness, make_stopping_refusal
from saccade.serving.http.metrics import Metrics
from saccade.serving.http.origins import AllowedSites
from saccade.serving.http.responses import Refusal, refuse
from saccade.serving.http.security import Keys
from saccade.serving.http.turns import one_at_a_time, run_in_thread
from saccade.serving.libretranslate.detection import Detector
from saccade.serving.models import ModelSet, ServedModel
from saccade.serving.processes.metrics import SharedMetrics
from saccade.serving.processes.workers import WorkerLost, Workers, WorkerTask
from saccade.serving.settings import Settings
from saccade.serving.waiting import ModelCall

LOST = "The process that computed this answer has ended; ask again"
MAX_AT_WORKERS = 3  # requests that workers are asked for beside slow batches
SHORT = 1000  # characters that are split, and whose pieces are counted, in no time


@final
@dataclass
class Service:
    """The parts that all routes share."""

    models: ModelSet
    settings: Settings
    metrics: Metrics
    keys: Keys
    detector: Detector
    readiness: Readiness
    sites: AllowedSites
    workers: Workers | None = None
    _waiting: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MAX_AT_WORKERS))

    def tell_metrics(self) -> bytes:
        """Return the metrics of this process, or of all; then the others are at most a second older."""
        own, process = self.metrics.text(), self.settings.process
        return own if process is None else SharedMetrics(process.folder).add_up(self._name, own)

    def share_metrics(self) -> None:
        """Leave this process's metrics for the others."""
        if self.settings.process is not None:
            SharedMetrics(self.settings.process.folder).write(self._name, self.metrics.text())

    @property
    def _name(self) -> str:
        assert self.settings.process is not None
        return f"process{self.settings.process.number}-{os.getpid()}"

    async def ask(self, model: ServedModel, call: ModelCall, items: Sequence[Any]) -> list[Any]:
        """Return an answer for each item; refuse with the status that fits."""
        num_characters = sum(len(item) for item in items if isinstance(item, str))
        self.metrics.characters.labels(model.run.name).inc(num_characters)
        note_work(model.run.name, num_characters)
        with _translate_errors():
            client = caller_name() or ""
            costs = await self._estimate(model, call, items, client, num_characters)
            return await model.batcher.submit(call, items, client=client, costs=costs)

    async def ask_worker(self, model: ServedModel, call: ModelCall, item: Any) -> Any:
        """Return what a worker says of an item; for each address one does so at a time, while others ask."""
        assert self.workers is not None
        waiter = _Waiter()
        try:
            with _translate_errors():
                async with one_at_a_time():
                    asked = WorkerTask(model.run.name, call, [item])
                    loop = asyncio.get_running_loop()
                    (found,) = await loop.run_in_executor(self._waiting, self.workers.answer, asked, waiter)
                    return found
        finally:
            waiter.is_gone = True

    def check_room(self, model: ServedModel, num_items: int) -> None:
        """Refuse so many items, or more, before anything is done with them, if the queue has no room."""
        with _translate_errors():
            model.batcher.check_room(caller_name() or "", num_items)

    async def _estimate(
        self, model: ServedModel, call: ModelCall, items: Sequence[Any], client: str, num_characters: int
    ) -> list[int]:
        """Estimate the cost of each item, beside the event loop where it takes as long as answering a short text."""

        def estimate() -> list[int]:
            model.batcher.check_room(client, len(items))
            return [work.estimate_cost(model.run.predictor, call, item) for item in items]

        return estimate() if num_characters <= SHORT else await run_in_thread(estimate)

    def check_whole(self, model: ServedModel, *texts: str) -> None:
        """Refuse texts that are longer than a model reads at once."""
        most = model.run.limits
        for text in texts:
            if len(text) > most.characters:
                _refuse_unsplit(f"{len(text)}", f"{most.characters}")
            if (count := model.run.predictor.num_pieces(text)) > most.pieces:
                _refuse_unsplit(f"{count} pieces", f"{most.pieces} pieces")

    def check_beam(self, model: ServedModel, texts: Sequence[str], *, width: int | None = None) -> None:
        """Refuse a beam that makes more work of texts than the longest allowed text is."""
        times = math.ceil((width or 1) / (model.run.predictor.traits.beam or 1))
        size, most = sum(map(len, texts)), self.settings.max_characters
        if times > 1 and times * size > most:
            refuse(f"request ({size} characters x {times} for a beam of {width}) exceeds text limit ({most})")

    def texts(self, given: str | list[str]) -> list[str]:
        """Return one text or several as a list; refuse what exceeds the limits."""
        texts = [given] if isinstance(given, str) else given
        if len(texts) > (most := self.settings.max_texts):
            refuse(f"request ({len(texts)}) exceeds text limit ({most})")
        if (size := sum(map(len, texts))) > (most := self.settings.max_characters):
            refuse(f"request ({size}) exceeds text limit ({most})")
        return texts


@final
class _Waiter:
    """A request that waits for a worker, until it is gone."""

    is_gone = False

    def find_wanted(self) -> list[bool] | None:
        return [False] if self.is_gone else None


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Answer with the status that fits what went wrong."""
    try:
        yield
    except QueueFull as full:
        headers = {"Retry-After": str(full.retry_after)}
        raise Refusal(429, "Slowdown: too many texts are waiting", headers, reason=full.reason) from None
    except QueueClosed:
        raise make_stopping_refusal() from None
    except WorkerLost:
        raise Refusal(503, LOST, {"Retry-After": str(RETRY)}, reason="lost") from None
    except UserError as mistake:
        refuse(str(mistake))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        headers = {"Retry-After": str(RETRY)}
        raise Refusal(503, "The server is out of memory", headers, reason="memory") from None


def _refuse_unsplit(size: str, limit: str) -> None:
    refuse(f"request ({size}) exceeds text limit ({limit}) for a text that is not split")
