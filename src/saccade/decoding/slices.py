"""Decoding in slices: between two steps, whoever runs a search may let others go first, drop sources, or end it.

A supervisor is set for a thread, because what searches is called through a model's whole interface:

with supervise(by):
    model.predict(texts)        # by.pause() and by.find_wanted() are called between the steps

Results are those of a search without one: a pause changes no number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

Tick = Callable[[], Sequence[bool] | None]  # called between two steps; which sources are still wanted, None: all


class ComputationEnded(BaseException):
    """Raised by a supervisor in a computation that must not go on; nothing that handles errors should catch it."""


class Supervisor(Protocol):
    """The caller that runs a computation in slices."""

    def pause(self) -> None:
        """Return when the computation may go on; raise `ComputationEnded` if it must not."""

    def find_wanted(self) -> Sequence[bool] | None:
        """Return for each input of the call whether its answer is still wanted; None: all are."""


class _Current(threading.local):
    supervisor: Supervisor | None = None


_CURRENT = _Current()


@contextmanager
def supervise(supervisor: Supervisor) -> Iterator[None]:
    """Let `supervisor` pause and end what this thread computes inside the block."""
    before, _CURRENT.supervisor = _CURRENT.supervisor, supervisor
    try:
        yield
    finally:
        _CURRENT.supervisor = before


def pause() -> None:
    """End a slice: whoever runs this computation may let others go first, or end it."""
    if _CURRENT.supervisor is not None:
        _CURRENT.supervisor.pause()


def narrow(tick: Tick, rows: Sequence[int]) -> Tick:
    """Return what a search of some of the sources is to do between two steps."""

    def tell() -> Sequence[bool] | None:
        wanted = tick()
        return None if wanted is None else [wanted[row] for row in rows]

    return tell


def tick_of(inputs: Sequence[int]) -> Tick | None:
    """Return what a search of these inputs of the call is to do between two steps; None: nothing."""
    supervisor = _CURRENT.supervisor
    if supervisor is None:
        return None

    def tick() -> Sequence[bool] | None:
        supervisor.pause()
        wanted = supervisor.find_wanted()
        return None if wanted is None else [wanted[number] for number in inputs]

    return tick
