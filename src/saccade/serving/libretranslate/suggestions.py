"""Better translations sent by users, one JSON object a line: a corpus to train on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import final

from saccade.serving.http.responses import Refusal

MAX_BYTES = 100 << 20


@final
class Suggestions:
    """A file of suggestions with a limited size. Only its owner reads it: it has texts of users."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch(mode=0o600)

    def add(self, texts: Mapping[str, str]) -> None:
        """Append a suggestion to the file."""
        line = json.dumps({"source": texts["q"], "target": texts["s"], "from": texts["source"], "to": texts["target"]})
        if self.path.stat().st_size + len(line) > MAX_BYTES:
            raise Refusal(403, "Suggestions are disabled on this server.")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
