"""The manifest of a run folder: a SHA-256 of each small file, so that a change is noticed before the file is used.

Models and checkpoints hold checksums of their own. Runs of earlier versions have no manifest.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from saccade.errors import UserError
from saccade.files import replace_file

NAME = "manifest.json"
INSIDE = ("checkpoints", "validated")  # folders of a run whose files are read
DATA = "data/"  # the data of a run that brings its own
Checksums = dict[str, list[str]]  # of each file; two while it is replaced


def exists(folder: Path) -> bool:
    """Tell whether a run has a manifest."""
    return (folder / NAME).exists()


def begin(folder: Path) -> None:
    """Start an empty manifest."""
    _save(folder, {})


def record(folder: Path, *names: str) -> None:
    """Record the files of these names that exist, as they are now; a run without a manifest stays without."""
    if exists(folder):
        found = {name: [_checksum((folder / name).read_bytes())] for name in names if (folder / name).exists()}
        _save(folder, {**_load(folder), **found})


def forget(folder: Path, *names: str) -> None:
    """Record these files no longer: they are about to grow, or to go."""
    if exists(folder):
        _save(folder, {name: sums for name, sums in _load(folder).items() if name not in names})


def write(folder: Path, name: str, text: str) -> None:
    """Replace a file and record it. Whenever this ends, the file is one that the manifest knows."""
    content, is_recorded = text.encode(), exists(folder)
    known = _load(folder).get(name, []) if is_recorded else []
    if is_recorded:
        _save(folder, {**_load(folder), name: [*known, _checksum(content)]})
    with replace_file(folder / name) as draft:
        draft.write_bytes(content)
    record(folder, name)


def find_changed(folder: Path) -> list[Path]:
    """Return the recorded files that exist and are not as they were written."""
    paths = {folder / name: sums for name, sums in _load(folder).items()}
    return [path for path, sums in paths.items() if path.is_file() and _checksum(path.read_bytes()) not in sums]


def is_recorded(folder: Path, name: str) -> bool:
    """Tell whether a run has a checksum of a file of this name."""
    return name in _load(folder)


def refuse_strange_places(folder: Path) -> None:
    """Refuse links that lead out of a folder, and pipes and devices: a run may come from anywhere."""
    top = folder.resolve()
    for place in (folder, *(folder / name for name in INSIDE)):
        for path in place.iterdir() if place.is_dir() else ():
            if path.is_symlink() and not path.resolve().is_relative_to(top):
                raise UserError(f"{path}: this link leads out of the run folder; nothing outside is read")
            if path.exists() and not (path.is_file() or path.is_dir()):
                raise UserError(f"{path}: this is neither a file nor a folder; a run holds nothing else")


def _load(folder: Path) -> Checksums:
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        stored = json.loads(path.read_bytes())
        files: Checksums = stored["files"]
        if stored["checksum"] != _checksum(json.dumps(files).encode()):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path} is damaged; delete it, and nothing else of this run is checked") from None
    if strange := [name for name in files if Path(name).name != name.removeprefix(DATA)]:
        raise UserError(f"{path}: {strange[0]!r} is no name of a file in this folder")
    return files


def _save(folder: Path, files: Checksums) -> None:
    stored = {"files": files, "checksum": _checksum(json.dumps(files).encode())}
    with replace_file(folder / NAME) as draft:
        draft.write_text(json.dumps(stored, indent=1), "utf-8")


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
