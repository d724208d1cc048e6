"""The processes of a comparison: each trains one run after another, at a place of its own."""

from __future__ import annotations

import contextlib
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
        with contextlib.suppress(BrokenPipeError):  # it ended in between
            self.child.stdin.write(json.dumps(given) + "\n")
            self.child.stdin.flush()
        if line := self.child.stdout.readline():
            found = json.loads(line)
            if "refused" in found:
                raise UserError(found["refused"])
            return found["found"]
        self.child.communicate()
        code, self.child = self.child.returncode, None
        if code == 130:
            raise KeyboardInterrupt
        raise RuntimeError(f"a process ended with exit code {code}; what it said stands above")

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
        """Do it for all that can be begun in time, as many at once as there are workers.

        What an error ended is tried once more when all else is done: others may have left the accelerator by then.
        """
        wanted, found, errors = list(given), dict[int, T](), dict[int, RuntimeError]()

        def take(number: int) -> None:
            worker = self.free.get()
            try:
                if time.monotonic() < self.until:
                    found[number] = do(worker, wanted[number])
            except RuntimeError as error:
                errors[number] = error
            finally:
                self.free.put(worker)

        self._side_by_side(take, range(len(wanted)))
        again = sorted(errors)
        errors.clear()
        self._side_by_side(take, again)
        if errors:
            what = f"{len(errors)} of {len(wanted)} runs ended with an error, twice; the others are done, and the same"
            raise RuntimeError(f"{what} command goes on; the first: {errors[min(errors)]}")
        return [found[number] for number in sorted(found)]

    def _side_by_side(self, take: Callable[[int], None], numbers: Iterable[int]) -> None:
        """Take all of them; the first mistake of the user's, or Ctrl-C, ends it."""
        pool = ThreadPoolExecutor(len(self.all))
        try:
            list(pool.map(take, numbers))
        finally:
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        for one in self.all:
            one.close()
