"""What every task's predictor has in common: several inputs, and what `evaluate` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from saccade.errors import UserError

T = TypeVar("T")
Watch = Callable[[Iterator[Any], int], Iterable[Any]]  # sees outputs go by, of so many


class Evaluation(NamedTuple):
    """Scores for a program, lines for people, and a picture where there is one."""

    scores: Mapping[str, Any]
    lines: list[str]
    draw: Callable[[Path], None] | None = None


def several(inputs: Iterable[T]) -> Iterable[T]:
    """The same; a lone string would be read letter by letter."""
    if isinstance(inputs, str | bytes | Path):
        raise UserError(f"predict: {str(inputs)[:40]!r} given; it takes a list of inputs, so put it into one")
    return inputs
