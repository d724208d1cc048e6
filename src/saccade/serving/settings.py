"""What a server allows: one place for every limit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

MOST_WHOLE = 1000  # characters of a text that isn't split: to be looked at, or tagged
MOST_PIECES = 256  # of such a text, where a translator cuts it
MOST_NUMBERS = 2_000_000  # weights in one answer
MOST_FLOW = 2000  # pairs of pieces that attention flow may be asked for: seconds
MOST_PIXELS = 1 << 22  # of a picture, however small its file


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and doors. Times in seconds; `max_queue` counts sentences (or pictures) that wait for one model."""

    host: str = "127.0.0.1"
    port: int = 5000
    max_queue: int = 1024
    timeout: float = 30.0
    batch_wait: float = 0.004
    max_characters: int = 20_000
    max_texts: int = 256
    max_body: int = 8 << 20
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    threads: int = 1
    suggestions: Path | None = None
    quiet: bool = False
