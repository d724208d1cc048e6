"""Files that are never half written, and folders that one process at a time writes in."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from saccade.errors import UserError

DRAFT = re.compile(r"\..+-[a-z0-9_]{8}(\.\w+)?")  # the names that `replace_file` gives


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Give a draft's path to write to: it takes the place of `path` when the block ends well, else it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.chmod(0o666 & ~_umask())
        draft.replace(path)
        _store_names(path.parent)
    except OSError as error:  # the user knows the place, not the draft
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def create_folder(path: Path) -> Iterator[Path]:
    """Give a draft's path to fill: it becomes the new folder `path` when the block ends well, else it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        with name_place(path, draft):
            yield draft
            mask = _umask()
            for file in filter(Path.is_file, draft.rglob("*")):
                with file.open("rb") as written:
                    os.fsync(written.fileno())
                file.chmod(0o666 & ~mask)
            draft.chmod(0o777 & ~mask)
            draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def name_place(path: Path, draft: Path) -> Iterator[None]:
    """Let errors of a disk name the place that a draft is for: the user knows it, and not the draft."""
    try:
        yield
    except OSError as error:
        if error.errno is None or not str(error.filename or draft).startswith(str(draft)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def pack_folder(folder: Path, path: Path) -> None:
    """Write a folder as a zip file, completely or not at all."""
    with replace_file(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(filter(Path.is_file, folder.rglob("*"))):
            packed.write(file, file.relative_to(folder))


@contextmanager
def lock_folder(folder: Path, does: str = "is training") -> Iterator[None]:
    """Refuse other processes that want to write in this folder, until the block or this process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / ".lock").acquire(timeout=0)
    except Timeout:
        raise UserError(f"{folder}: another process {does} in it; wait, or give another folder") from None
    with lock:
        yield


def remove_drafts(folder: Path) -> None:
    """Remove the drafts of killed processes in a folder that no other process writes in."""
    for path in folder.glob(".*"):
        if DRAFT.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def _store_names(folder: Path) -> None:
    """Have the disk keep what is in a folder: a file's own fsync doesn't keep its new name."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
