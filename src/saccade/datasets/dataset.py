"""Data sets, made by the package or public, and the files that recipes find in their folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from saccade.datasets.material import Material


class Download(NamedTuple):
    """A file to fetch. Its SHA-256 is known where the server always sends the same bytes."""

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[-1]


@final
@dataclass(frozen=True, kw_only=True)
class MadeData:
    """Data that the package writes itself."""

    what: str
    size: str
    files: tuple[str, ...]
    make: Callable[[Path], None]
    licence: str = "made here, free"


@final
@dataclass(frozen=True, kw_only=True)
class PublicData:
    """Data that others have published.

    `files` are the names in the data set's folder, each with the SHA-256 of its unpacked contents where that is known.
    `prepare` writes them from what was fetched or given. Where `downloads` is empty, the licence does not let a program
    fetch the data: `home` is where people get them, and `wanted` says what they give to `--from` then.
    """

    what: str
    size: str
    files: Mapping[str, str | None]
    licence: str
    home: str
    prepare: Callable[[Material, Path], None]
    downloads: tuple[Download, ...] = ()
    wanted: str = ""


DataSet = MadeData | PublicData
