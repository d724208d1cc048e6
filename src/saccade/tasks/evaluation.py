"""What `evaluate` of any task gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Evaluation(NamedTuple):
    """Scores for a program, lines for people, and a picture where there is one."""

    scores: Mapping[str, Any]
    lines: list[str]
    draw: Callable[[Path], None] | None = None
