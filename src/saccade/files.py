"""Files that are never half written, and folders that one process at a time writes in."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from saccade.errors import UserError


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
def lock_folder(folder: Path) -> Iterator[None]:
    """Refuse other processes that want to train in this folder, until the block or this process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / ".lock").acquire(timeout=0)
    except Timeout:
        raise UserError(f"{folder}: another process is training in it; wait, or give another folder") from None
    with lock:
        yield


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
