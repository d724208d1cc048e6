"""Finds the native library, builds it where there is none, and chooses the kernels that this processor runs."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_long, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import final

from filelock import FileLock

from saccade.errors import UserError
from saccade.export.native import build
from saccade.files import replace_file

PACKAGED = Path(__file__).parent / build.LIBRARY  # of a wheel
CPU = Path("/proc/cpuinfo")


class SearchOptions(ctypes.Structure):
    """`struct options` of csrc/search.c."""

    _fields_ = [
        *((name, c_int64) for name in ("width", "num_best", "min_length", "max_rounds", "length_offset", "most_ended")),
        ("banned", c_uint64),
        ("length_penalty", c_double),
    ]


class SearchTold(ctypes.Structure):
    """`struct told` of csrc/search.c: what a search says of a source."""

    _fields_ = [("num_found", c_int64), ("lost", c_int64), ("lost_score", c_double)]


class SearchOutput(ctypes.Structure):
    """`struct output` of csrc/search.c."""

    _fields_ = [
        ("score", c_double),
        ("count", c_int64),
        ("kind", c_int64),
        ("ids", POINTER(c_int32)),
        ("steps", POINTER(c_float)),
    ]


SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "checksum": (c_uint64, [c_void_p, c_long]),
    "probe": (c_int, [c_char_p]),
    "open": (c_void_p, [c_char_p, c_char_p, c_int, c_char_p, c_long]),
    "close": (None, [c_void_p]),
    "start": (c_void_p, [c_void_p, c_long, c_void_p, c_void_p]),
    "step": (c_int, [c_void_p, c_long, c_void_p, c_long, c_void_p, c_long, c_void_p, c_void_p]),
    "end": (None, [c_void_p]),
    "read": (c_int, [c_void_p, c_long, c_void_p, c_void_p, c_void_p, c_void_p]),
    "chain": (
        c_int,
        [c_long, c_long, c_long, c_void_p, c_void_p, c_void_p, c_double, c_void_p, c_void_p, c_void_p],
    ),
    "logits": (c_int, [c_void_p, c_long, c_void_p, c_void_p, c_long]),
    "search": (c_void_p, [c_void_p, POINTER(SearchOptions), c_long, c_long, c_int]),
    "add": (c_int, [c_void_p, c_long, c_void_p, c_long, c_void_p, c_long, c_int]),
    "allow": (c_int, [c_void_p, c_long, c_void_p]),
    "drop": (None, [c_void_p, c_long]),
    "run": (c_long, [c_void_p, c_long]),
    "tell": (None, [c_void_p, c_long, POINTER(SearchTold)]),
    "output": (None, [c_void_p, c_long, c_long, POINTER(SearchOutput)]),
    "forget": (None, [c_void_p]),
}


def cache_folder() -> Path:
    """Return the folder of what can be made again: $SACCADE_CACHE, or `saccade` in the user's folder of such things."""
    if named := os.environ.get("SACCADE_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "saccade"


def find_library() -> Path:
    """Return the library's file, built first where there is none."""
    return PACKAGED if PACKAGED.exists() else _find_built()


@cache
def load_library() -> ctypes.CDLL:
    """Load the library, built first where there is none; `UserError` says why it can't be."""
    try:
        library = ctypes.CDLL(str(find_library()))
    except (build.BuildError, OSError) as error:
        raise UserError(f"engine: the native library can't be used here: {error}; the engine torch can") from None
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, f"saccade_{name}")
        function.restype, function.argtypes = result, arguments
    return library


@final
class OpenedModel:
    """A packed model that is mapped, and the threads that compute with it.

    Each process opens it for itself: the threads of another did not come along.
    """

    def __init__(self, packed: Path, kernels: str, threads: int) -> None:
        self.kernels, self.threads, self._packed = kernels, threads, packed
        self._open()

    @property
    def handle(self) -> int:
        """Return the handle that functions of the library take; a forked process opens the model again."""
        if self._process != os.getpid():
            self._open()
        return self._handle

    def _open(self) -> None:
        library, reason = load_library(), ctypes.create_string_buffer(200)
        name = bytes(self._packed)
        self._handle: int = library.saccade_open(name, self.kernels.encode(), self.threads, reason, len(reason))
        self._process = os.getpid()
        if not self._handle:
            said = f"this packed model can't be used, {reason.value.decode()}"
            raise UserError(f"{self._packed}: {said}; remove the file")
        weakref.finalize(self, _close, library.saccade_close, self._handle, self._process)


def _close(close: Callable[[int], None], handle: int, process: int) -> None:
    if process == os.getpid():  # another process has its own
        close(handle)


def _find_built() -> Path:
    """Return the library of these sources in the cache; compile it the first time."""
    digest = hashlib.sha256(f"{platform.machine()} {platform.libc_ver()} {os.environ.get('CC')}".encode())
    for source in (Path(build.__file__), *sorted(build.SOURCES.iterdir())):
        digest.update(source.read_bytes())
    path = cache_folder() / "native" / f"{digest.hexdigest()[:24]}.so"
    if path.exists():
        return path
    with find_writable(path.parent) as folder, FileLock(folder / ".lock"):
        path = folder / path.name
        if not path.exists():
            with replace_file(path) as draft:
                build.build(draft)
        return path


@contextmanager
def find_writable(folder: Path) -> Iterator[Path]:
    """Give a folder to write in: this one, or where it can't be written, one that lasts as long as the process."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_fine = os.access(folder, os.W_OK)
    except OSError:
        is_fine = False
    yield folder if is_fine else _folder_of_process()


@cache
def _folder_of_process() -> Path:
    place = tempfile.TemporaryDirectory(prefix="saccade-native-")
    _PLACES.append(place)
    return Path(place.name)


_PLACES: list[tempfile.TemporaryDirectory[str]] = []  # they are removed when the process ends


def list_kernels() -> list[str]:
    """Return the kernels that run here, the best first; each was tried in a child process."""
    return list(_find_kernels())


def choose_kernels() -> str:
    """Return the best kernels that run here; no others are tried."""
    if (found := next(_find_kernels(), None)) is None:
        raise UserError("engine: the native library can't be used here: its kernels could not be tried; use torch")
    return found


def _find_kernels() -> Iterator[str]:
    load_library()
    features = _read_features()
    named = [
        name for name, one in build.list_instruction_sets().items() if features is None or one.features <= features
    ]
    return (name for name in named if _works(name))


@cache
def _works(name: str) -> bool:
    return bool(load_library().saccade_probe(name.encode()))


def _read_features() -> frozenset[str] | None:
    """Return the processor's features as Linux names them; None: it doesn't tell."""
    try:
        lines = CPU.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    found = [line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))]
    return frozenset(found[0]) if found else None
