"""Files that a data set is prepared from: folders, archives and single files, read by the ends of their paths."""

from __future__ import annotations

import gzip
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import final

from saccade.errors import UserError

DAMAGE = (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


@final
class Material:
    """The files under some paths: a folder's, an archive's members (zip, tar), or a file itself."""

    def __init__(self, *roots: Path) -> None:
        self.roots = roots

    def read(self, *endings: str) -> bytes:
        """Return the contents of the one file whose path ends with one of these names, unpacked if it is gzipped."""
        pattern = "|".join(re.escape(ending) for ending in endings)
        found = list(self.matching(rf"(?:.*/)?(?:{pattern})(?:\.gz)?"))
        if not found:
            raise UserError(f"{self}: there is no {' or '.join(endings)} in it")
        if len(found) > 1:
            raise UserError(f"{self}: there are several files of that name in it: {found[0][0]} and {found[1][0]}")
        return found[0][1]

    def matching(self, pattern: str) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the contents of every file whose path matches a regular expression, in their order."""
        wanted = re.compile(pattern)
        for root in self.roots:
            try:
                for path, content in _members(root, wanted):
                    yield path, gzip.decompress(content) if path.endswith(".gz") else content
            except DAMAGE as error:
                raise UserError(
                    f"{root}: it cannot be read ({' '.join(str(error).split()) or 'it is cut off'})"
                ) from None

    def __str__(self) -> str:
        return str(self.roots[0]) if len(self.roots) == 1 else str(self.roots[0].parent)


def _members(root: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    if root.is_dir():
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if wanted.fullmatch(name) and path.is_file():
                yield name, path.read_bytes()
    elif zipfile.is_zipfile(root):
        with zipfile.ZipFile(root) as archive:
            for entry in archive.infolist():
                if wanted.fullmatch(entry.filename):
                    yield entry.filename, archive.read(entry)
    elif tarfile.is_tarfile(root):
        with tarfile.open(root) as packed:
            for member in packed:
                content = packed.extractfile(member) if wanted.fullmatch(member.name) and member.isfile() else None
                if content is not None:
                    yield member.name, content.read()
    elif wanted.fullmatch(root.name):
        yield root.name, root.read_bytes()
