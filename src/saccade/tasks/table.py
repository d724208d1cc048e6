"""The table of tasks by name: the code of one is imported when it is asked for, since each takes its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from pkgutil import resolve_name
from typing import final

from saccade.tasks.base import Task


@final
class TaskTable(MutableMapping[str, Task]):
    """Tasks, or where they are: `module:NAME` within `saccade.tasks`."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._found: dict[str, Task | str] = dict(places)

    def __getitem__(self, name: str) -> Task:
        found = self._found[name]
        if isinstance(found, str):
            found = self._found[name] = resolve_name(f"saccade.tasks.{found}")
        assert isinstance(found, Task)
        return found

    def __setitem__(self, name: str, task: Task) -> None:
        self._found[name] = task

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
