"""The settings of a server, and all its limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

MAX_UNSPLIT_CHARACTERS = 1000  # of a text that is not split: to look at, or to tag
MAX_UNSPLIT_PIECES = 256  # of such a text, for a translator
MAX_WHOLE_CHARACTERS = 4096  # of a text for a model whose texts are not sentences
MAX_WHOLE_PIECES = 1024  # of such a text
MAX_WEIGHTS = 2_000_000  # in one answer
MAX_FLOW_PAIRS = 2000  # of pieces in one attention flow, which takes seconds
MAX_SECONDS = 60  # of a sound
MAX_PIXELS = 1 << 22  # of a picture, even if its file is small


class ProcessOfSeveral(NamedTuple):
    """The number of a process, and the folder where all of them leave their metrics."""

    number: int
    folder: Path


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Addresses, keys and limits. Times are in seconds; `max_queue` counts waiting sentences or pictures of a model.

    `rate` is in requests a minute, of a key or an address; 0 is no limit.
    """

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
    rate: int = 0
    max_connections: int = 2048
    drain_wait: float = 5.0
    drain_timeout: float = 20.0
    threads: int = 1
    suggestions: Path | None = None
    quiet: bool = False
    process: ProcessOfSeveral | None = None
