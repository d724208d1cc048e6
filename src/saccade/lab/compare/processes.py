"""The processes of a comparison: each trains one run after another, at a place of its own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeVar, final

from saccade.errors import UserError
from saccade.lab.compare.variants import Changes, RunOutline
from saccade.lab.compare.worker import Errand

A = TypeVar("A")
T = TypeVar("T")


@final
class Worker:
    """A process that does one thing after another, begun when there is the first; it ends with this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.child: subprocess.Popen[str] | None = None

    def train(self, errand: Errand) -> bool:
        """Train a run; return False if its loss was not finite."""
        return bool(self._ask("train", *errand))

    def outline(self, config: str, overrides: Sequence[str], changes: Changes, tokenizers: str | None) -> RunOutline:
        """Build a run without training it."""
        return RunOutline(*self._ask("outline", config, overrides, changes, tokenizers))

    def _ask(self, *given: object) -> Any:
        self.child = self.child or _begin(self.environment)
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(json.dumps(given) + "\n")
        self.child.stdin.flush()
        if line := self.child.stdout.readline():
            found = json.loads(line)
            if "refused" in found:
                raise UserError(found["refused"])
            return found["found"]
        code = self.child.wait()
        if code == 130:
            raise KeyboardInterrupt
        raise RuntimeError(f"{given}: ended with exit code {code}; what it said stands above")

    def close(self) -> None:
        """End the process."""
        if self.child is not None:
            self.child.communicate()


def _begin(environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "saccade.lab.compare.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@final
class Workers:
    """Workers side by side."""

    def __init__(self, environments: Sequence[Mapping[str, str]]) -> None:
        self.all = [Worker(one) for one in environments]
        self.until = math.inf  # of `time.monotonic`: nothing is begun after it
        self.free = SimpleQueue[Worker]()
        for one in self.all:
            self.free.put(one)

    def each(self, do: Callable[[Worker, A], T], given: Iterable[A]) -> list[T]:
        """Do it for all that can be begun in time, as many at once as there are workers; the first failure ends it."""

        def take(one: A) -> list[T]:
            worker = self.free.get()
            try:
                return [do(worker, one)] if time.monotonic() < self.until else []
            finally:
                self.free.put(worker)

        pool = ThreadPoolExecutor(len(self.all))
        try:
            return [found for begun in pool.map(take, given) for found in begun]
        finally:
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        for one in self.all:
            one.close()
