"""Brings a data set to its folder: makes it, fetches it, or prepares what the user has; whole, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from saccade.datasets.dataset import DataSet, Download, MadeData, PublicData
from saccade.datasets.fetch import Watch, fetch
from saccade.datasets.material import Material
from saccade.datasets.table import DATASETS
from saccade.errors import UserError

ORIGIN = "SOURCE.txt"
Tell = Callable[[str], None]


def is_there(data_set: DataSet, folder: Path) -> bool:
    """Tell whether all files of a data set are in its folder."""
    return all((folder / name).exists() for name in data_set.files)


def point_to_data(config: Any) -> None:
    """Refuse a config whose data are missing where `saccade data` would bring them: say so."""
    for path in _list_strings(config.data.model_dump()):
        parts = Path(path).parts
        if parts[:1] == ("data",) and parts[1:2] and parts[1] in DATASETS and not Path(*parts[:2]).exists():
            raise UserError(f"there is no folder at {Path(*parts[:2])}; saccade data {parts[1]} brings it")


def _list_strings(given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, dict | list | tuple):
        for one in given.values() if isinstance(given, dict) else given:
            yield from _list_strings(one)


def bring(name: str, data_set: DataSet, folder: Path, *, given: Path | None, tell: Tell, watch: Watch) -> None:
    """Write the files of a data set into its folder, from `given` if that is a path."""
    if isinstance(data_set, MadeData) and given is not None:
        raise UserError(f"--from: given, but saccade makes {name} itself")
    if given is not None and not given.exists():
        raise UserError(f"--from: there is no file or folder at {given}")
    with _stage(folder) as stage:
        ready = stage / "ready"
        ready.mkdir()
        if isinstance(data_set, MadeData):
            data_set.make(ready)
        else:
            material = Material(given) if given is not None else _fetch_all(name, data_set, stage, tell, watch)
            data_set.prepare(material, ready)
            _check(name, data_set, ready, is_given=given is not None, tell=tell)
        origin = given or (data_set.home if isinstance(data_set, PublicData) else "saccade itself")
        (ready / ORIGIN).write_text(f"{data_set.what}\nFrom: {origin}\nLicence: {data_set.licence}\n", "utf-8")
        _move_in(ready, folder)


def _fetch_all(name: str, data_set: PublicData, stage: Path, tell: Tell, watch: Watch) -> Material:
    """Fetch the files; where that fails, say what the user can do without a network."""
    if not data_set.downloads:
        raise UserError(
            f"{name}: its licence ({data_set.licence}) does not let saccade fetch it. Get it at {data_set.home}, then: "
            f"saccade data {name} --from PATH, with {data_set.wanted}"
        )
    tell(f"{name}: {data_set.what}. Licence: {data_set.licence}.")
    try:
        return Material(*(fetch(one, stage, watch) for one in data_set.downloads))
    except UserError as error:
        call = f"into a folder and call: saccade data {name} --from FOLDER"
        hint = f"to go on by hand, put {_name_downloads(data_set.downloads)} {call}"
        raise UserError(f"{error}. Nothing was written; {hint}") from None


def _name_downloads(downloads: Sequence[Download]) -> str:
    """Return what there is to fetch; of several files their names, and the address up to these where it is the same."""
    if len(downloads) == 1:
        return "it"
    places = {one.url.removesuffix(one.name) for one in downloads}
    from_where = f" from {places.pop()}" if len(places) == 1 else ""
    return f"{len(downloads)} files{from_where} ({', '.join(one.name for one in downloads)})"


def _check(name: str, data_set: PublicData, ready: Path, *, is_given: bool, tell: Tell) -> None:
    """Compare contents with the checksums: what was fetched must be right, what was given may differ."""
    for file, wanted in data_set.files.items():
        if wanted is None or digest(ready / file) == wanted:
            continue
        if not is_given:
            raise UserError(f"{name}: {file} has other contents than expected (SHA-256). Nothing was written")
        tell(f"{file} has other contents than the one that the recipes' figures were measured on.")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's unpacked contents; of a folder, of its files' names and digests."""
    if path.is_dir():
        rows = (
            f"{one.relative_to(path).as_posix()} {digest(one)}\n" for one in sorted(path.rglob("*")) if one.is_file()
        )
        return hashlib.sha256("".join(rows).encode()).hexdigest()
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _stage(folder: Path) -> Iterator[Path]:
    """Give a hidden folder beside the one to fill; it goes in any case, and so does one that a killed process left."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock_path = folder.parent / f".{folder.name}.lock"
    try:
        lock = FileLock(lock_path).acquire(timeout=0)
    except Timeout:
        raise UserError(f"{folder}: another process is bringing it; wait for that one") from None
    prefix = f".{folder.name}-"
    with lock:
        for left in folder.parent.glob(f"{prefix}*"):
            shutil.rmtree(left, ignore_errors=True)
        stage = Path(tempfile.mkdtemp(dir=folder.parent, prefix=prefix))
        try:
            yield stage
        finally:
            shutil.rmtree(stage, ignore_errors=True)
            lock_path.unlink(missing_ok=True)


def _move_in(ready: Path, folder: Path) -> None:
    """Put finished files in their place; other files there stay."""
    if not folder.exists():
        ready.rename(folder)
        return
    for path in ready.iterdir():
        place = folder / path.name
        if place.is_dir():
            shutil.rmtree(place)
        path.replace(place)
