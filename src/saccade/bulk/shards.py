"""The files of a bulk job, wherever fsspec finds them: those it reads, and for each the one that it writes."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import fsspec

from saccade.errors import UserError
from saccade.files import lock_folder, remove_drafts, replace_file

PATTERN = "*?["
WHOLE = {"abfs", "adl", "az", "gcs", "gs", "memory", "s3", "s3a"}  # a file is there when all of it is there
LOCAL = {"file", "local"}


class InputShard(NamedTuple):
    """A file to read: where it is, what its output is called, and how many bytes it has."""

    url: str
    name: str
    size: int


class Shard(NamedTuple):
    """Files that are read together, line by line, and the file that is written: all of them by their URLs."""

    name: str
    inputs: tuple[str, ...]
    output: str


def find_inputs(field: str, pattern: str) -> list[InputShard]:
    """Return the files of a path, a folder or a glob, in the order of their names; these begin behind the folder."""
    system, path = _open_system(field, pattern)
    try:
        if any(sign in path for sign in PATTERN):
            root, listed = _fixed_part(path), system.glob(path, detail=True)
        elif system.isdir(path):
            root, listed = path, system.find(path, detail=True)
        else:
            root, listed = str(PurePosixPath(path).parent), {path: system.info(path)} if system.exists(path) else {}
    except OSError as error:
        raise UserError(f"{field}: {pattern}: {error}") from None
    files = {name: info for name, info in listed.items() if info["type"] == "file" and not _is_hidden(name)}
    if not files:
        raise UserError(f"{field}: there is no file at {pattern}")
    return [
        InputShard(
            system.unstrip_protocol(name), str(PurePosixPath(name).relative_to(root)), int(info.get("size") or 0)
        )
        for name, info in sorted(files.items())
    ]


def match_shards(inputs: Sequence[Sequence[InputShard]], output: str) -> list[Shard]:
    """Return the shards: the first files of all sides go together, and so on; they are called as those of the first."""
    if len({len(side) for side in inputs}) > 1:
        counts = " and ".join(f"{len(side):,} files ({side[0].url} ...)" for side in inputs)
        raise UserError(f"--target: {counts} given; there must be one for each file of --input")
    folder = join_url(output)
    own = [
        Shard(files[0].name, tuple(file.url for file in files), join_url(folder, files[0].name))
        for files in zip(*inputs, strict=True)
    ]
    if clash := {shard.output for shard in own} & {file.url for side in inputs for file in side}:
        raise UserError(f"--output: {min(clash)} is also read; give another folder")
    return own


def join_url(folder: str, name: str = "") -> str:
    """Return the URL of a file in a folder, or of the folder; a local one does not depend on where one is."""
    system, path = _open_system("--output", folder)
    return system.unstrip_protocol(f"{path.rstrip('/')}/{name}" if name else path)


def list_written(output: str) -> dict[str, int]:
    """Return the URLs of the files in a folder with their sizes; drafts are not among them."""
    system, path = _open_system("--output", output)
    system.invalidate_cache()
    found = system.find(path, detail=True) if system.exists(path) else {}
    return {system.unstrip_protocol(name): int(info["size"]) for name, info in found.items() if not _is_hidden(name)}


@contextmanager
def fetch(urls: Sequence[str]) -> Iterator[list[Path]]:
    """Give local files with the content of these; what was copied is removed."""
    with tempfile.TemporaryDirectory(prefix="saccade-") as folder:
        paths = []
        for number, url in enumerate(urls):
            system, path = _open_system("--input", url)
            if _is_local(system):
                paths.append(Path(path))
                continue
            (own := Path(folder, str(number))).mkdir()
            paths.append(own / PurePosixPath(path).name)  # its ending says how it is read
            system.get_file(path, str(paths[-1]))
        yield paths


@contextmanager
def write_whole(url: str) -> Iterator[Path]:
    """Give a draft to write to; when the block ends well, it is at this URL, and before that nothing is."""
    system, path = _open_system("--output", url)
    if _is_local(system):
        with replace_file(Path(path)) as draft:
            yield draft
        return
    with tempfile.TemporaryDirectory(prefix="saccade-") as folder:
        yield (draft := Path(folder, "draft"))
        system.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
        if _names(system) & WHOLE:
            system.put_file(str(draft), path)
            return
        beside = PurePosixPath(path).with_name(f".{PurePosixPath(path).name}-{uuid.uuid4().hex[:8]}")
        system.put_file(str(draft), str(beside))
        system.mv(str(beside), path)


@contextmanager
def hold_folder(output: str) -> Iterator[None]:
    """Refuse other jobs that want to write in a local folder, and remove the drafts of killed ones."""
    system, path = _open_system("--output", output)
    if not _is_local(system):
        yield
        return
    with lock_folder(Path(path), "is writing"):
        for folder in {Path(path), *(child for child in Path(path).rglob("*") if child.is_dir())}:
            remove_drafts(folder)
        yield


def read_text(url: str) -> str | None:
    """Return the content of a small file, or None if there is none."""
    system, path = _open_system("--output", url)
    return system.cat_file(path).decode() if system.exists(path) else None


def _open_system(field: str, url: str) -> tuple[Any, str]:
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UserError(f"{field}: {url}: {error}") from None
    return found


def _names(system: Any) -> set[str]:
    return {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)


def _is_local(system: Any) -> bool:
    return bool(_names(system) & LOCAL)


def _fixed_part(pattern: str) -> str:
    """Return the folder of a glob that has no sign in it."""
    parts = PurePosixPath(pattern).parts
    first = next(place for place, part in enumerate(parts) if any(sign in part for sign in PATTERN))
    return str(PurePosixPath(*parts[:first]))


def _is_hidden(name: str) -> bool:
    return PurePosixPath(name).name.startswith(".")
