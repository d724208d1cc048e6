"""Loads the config of a run of any task."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from saccade.config import load as config_file
from saccade.config.base import RunSection
from saccade.config.load import save as save
from saccade.tasks import TASKS


def load(path: Path, overrides: Iterable[str] = ()) -> Any:
    """Read a YAML file plus `section.field=value` overrides."""
    return config_file.load(path, overrides, _kinds())


def check(content: dict[str, Any], where: str) -> Any:
    """Build a config from plain data; `where` names its origin in messages."""
    return config_file.check(content, where, _kinds())


def _kinds() -> dict[str, type[RunSection]]:
    return {name: task.config for name, task in TASKS.items()}
