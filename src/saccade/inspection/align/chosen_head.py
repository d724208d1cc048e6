"""Stores the head that aligns words best, once it is chosen, in the folder of its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from saccade import manifest
from saccade.errors import UserError
from saccade.inspection.insight import Head

NAME = "aligning.json"


def load(folder: Path) -> Head | None:
    """Load the chosen head, or return None if no head was chosen yet."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        stored = json.loads(path.read_text("utf-8"))
        return Head(int(stored["layer"]), None if stored["head"] is None else int(stored["head"]), int(stored["shift"]))
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; delete it and choose the head again (saccade look --align)") from None


def save(folder: Path, head: Head, **how: Any) -> None:
    """Save the head and how it was chosen."""
    manifest.write(folder, NAME, json.dumps({**head._asdict(), **how}, indent=1))
