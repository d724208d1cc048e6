"""Keeps what was read from files while several runs read the same ones in one process, one after another."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
KEPT: ContextVar[dict[Hashable, Any] | None] = ContextVar("KEPT", default=None)


@contextmanager
def keep_what_is_read() -> Iterator[None]:
    """Keep it in this block; files are taken not to change."""
    token = KEPT.set({})
    try:
        yield
    finally:
        KEPT.reset(token)


def read_once(key: Hashable, read: Callable[[], Sequence[T]]) -> list[T]:
    """Read, or return what was read under this key if it was kept."""
    kept = KEPT.get()
    if kept is None:
        return list(read())
    if key not in kept:
        kept[key] = read()
    return list(kept[key])
