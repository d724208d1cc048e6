"""Loads the next batches in a thread while the current one is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, final


@final
class Prefetcher:
    """`take(rows, later)` returns `load(rows)`; a thread meanwhile loads the first `depth` batches of `later`."""

    def __init__(self, load: Callable[[Any], Any], *, depth: int) -> None:
        self._load, self._depth = load, depth
        self._thread = ThreadPoolExecutor(1, "loading") if depth else None
        self._queue: deque[tuple[Any, Future[Any]]] = deque()

    def take(self, rows: Any, later: Sequence[Any]) -> Any:
        """Return the batch of these rows, which the thread may have loaded already."""
        if self._thread is None:
            return self._load(rows)
        while self._queue and self._queue[0][0] is not rows:  # loaded in advance, but other rows came
            self._queue.popleft()[1].cancel()
        batch = self._queue.popleft()[1].result() if self._queue else self._load(rows)
        for following in later[len(self._queue) : self._depth]:
            self._queue.append((following, self._thread.submit(self._load, following)))
        return batch

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
