"""Texts on their way to a model: with what goes with them, in windows, by length."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from saccade.data.grouping import group_by_length
from saccade.errors import UserError
from saccade.tasks.base import several

WINDOW_CHARACTERS = 1 << 22  # a window has no more than this, however long its texts are


class LongTextWarning(UserWarning):
    """Texts are not read to their end."""


@contextmanager
def read_long_texts() -> Iterator[None]:
    """Warn of no long text: it was said before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        yield


def pair_texts(
    texts: Iterable[str], prefixes: Iterable[str] | None, name: str = "prefixes"
) -> Iterator[tuple[str, str]]:
    """Pair each text with its prefix, or whatever goes with it."""
    texts = several(texts)
    if prefixes is None:
        yield from ((text, "") for text in texts)
        return
    for number, (text, prefix) in enumerate(itertools.zip_longest(texts, prefixes), 1):
        if text is None or prefix is None:
            short = name if prefix is None else "texts"
            raise UserError(f"{name}: there must be one for each text, but the {short} end after {number - 1:,}")
        yield text, prefix


def windows(texts: Iterator[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    """Yield runs of at most `size` texts, fewer where they are long."""
    window: list[tuple[str, str]] = []
    characters = 0
    for text in texts:
        window.append(text)
        characters += len(text[0])
        if len(window) == size or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def batch_by_length(lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Yield rows of like lengths within the token budget; blank ones are left out."""
    rows = [row for row, length in enumerate(lengths) if length]
    for batch in group_by_length([(lengths[row] + 1,) for row in rows], budget):
        yield [rows[index] for index in batch]
