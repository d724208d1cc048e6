"""Old examples among the new ones: a run that begins with another one mixes in what that has learned from."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from saccade.config.base import RunSection, Section
from saccade.config.load import check_config, read_config
from saccade.errors import UserError
from saccade.tasks.console import say

C = TypeVar("C", bound=RunSection)
T = TypeVar("T")


def settle_old(config: C, files: type[Section]) -> C:
    """Return the config with the `files` of old examples: those of the run it begins with, but for its test set."""
    data = config.data
    if not data.old_share or data.old != "auto":
        return config
    path = Path(str(config.base)) / "config.yaml"
    earlier = check_config(read_config(path, ()), str(path), {config.task: type(config)}).data
    old = files.model_validate({**earlier.model_dump(include=set(files.model_fields)), "test": None})
    return config.model_copy(update={"data": data.model_copy(update={"old": old})})


def mix_old(
    config: Any,
    new: list[T],
    read: Callable[[Any], Sequence[T]],
    console: Console,
    *,
    what: str,
    size: Callable[[T], int] = lambda _: 1,
) -> list[T]:
    """Add so many old examples, drawn at random, that they have `data.old_share` of the whole, by their sizes.

    Where there are too few, each is drawn as often as the others, or once more.
    """
    data = config.data
    if not data.old_share:
        return new
    try:
        old = read(data.old)
    except UserError as error:
        said = f"data.old_share: {data.old_share} given, but not all old examples are there ({error})"
        raise UserError(f"{said}; name them in data.old, or leave data.old_share out") from None
    if not old:
        raise UserError(f"data.old.train: {data.old.train} has no {what}")
    left = round(data.old_share / (1 - data.old_share) * sum(map(size, new)))
    drawn, generator = list[T](), random.Random(config.seed)
    while left > 0:
        for one in generator.sample(old, len(old)):
            if left <= 0:
                break
            drawn.append(one)
            left -= size(one)
    say(console, f"data.old: {len(drawn):,} {what} of {data.old.train}, which has {len(old):,}, are mixed in")
    return [*new, *drawn]
