"""Loads the config of a run of any task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

from saccade.config import load as config_file
from saccade.config.base import RunSection
from saccade.config.load import Overrides as Overrides
from saccade.config.load import override_fields as override_fields
from saccade.config.load import save_config as save_config
from saccade.tasks import TASKS

FillIn = Callable[[dict[str, Any]], dict[str, Any]]


def load_config(path: Path, overrides: Overrides = (), fill_in: FillIn = dict) -> Any:
    """Read a YAML file and change some fields: `section.field=value`, or a mapping of such names to values.

    `fill_in` adds what the fields leave to another run.
    """
    return check_config(fill_in(config_file.read_config(path, overrides)), str(path))


def check_config(content: dict[str, Any], where: str) -> Any:
    """Build a config from plain data; `where` names its origin in messages."""
    return config_file.check_config(content, where, _Configs())


@final
class _Configs(Mapping[str, type[RunSection]]):
    """The class of config of each task, by the task's name."""

    def __getitem__(self, name: str) -> type[RunSection]:
        return TASKS[name].config

    def __iter__(self) -> Iterator[str]:
        return iter(TASKS)

    def __len__(self) -> int:
        return len(TASKS)
