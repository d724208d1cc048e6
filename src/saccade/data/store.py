"""Stores rows of different lengths on disk, memory-mapped: prepared once, found again by a hash of their origin.

Token ids of both sides of a corpus are here; frames of sound are in `data.sound.recordings`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from saccade.data.text.corpus import Pair

FORMAT = 4  # raise it, and every store is made again
BUFFERED_BYTES = 1 << 22
A_DAY = 86_400.0
HASHES_AT_ONCE = 1 << 20
ROWS_AT_ONCE = 1 << 18


@final
@dataclass(frozen=True, eq=False)
class RaggedArray:
    """Rows of different lengths: all their steps in one array, and where each row begins and the last one ends."""

    steps: NDArray[Any]
    offsets: NDArray[np.int64]

    @classmethod
    def open(cls, folder: Path, name: str, dtype: DTypeLike = np.int32, width: int | None = None) -> RaggedArray:
        """Map the rows of a folder, whose steps are numbers, or `width` numbers each."""
        values = _map_file(folder / f"{name}.values", dtype)
        steps = values if width is None else values.reshape(-1, width)
        return cls(steps, _map_file(folder / f"{name}.offsets", np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        return self.steps[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of steps of every row."""
        return np.diff(self.offsets)

    def blocks(self, num_rows: int = ROWS_AT_ONCE) -> Iterator[RaggedArray]:
        """Yield all rows in order, so many at once, read into memory."""
        return (self.read(first, first + num_rows) for first in range(0, len(self), num_rows))

    def read(self, first: int, last: int) -> RaggedArray:
        """Read some neighbouring rows into memory. What is mapped would stay a part of this process once it is seen."""
        offsets = read_part(self.offsets, first, last + 1)
        return RaggedArray(read_part(self.steps, int(offsets[0]), int(offsets[-1])), offsets - offsets[0])


def read_part(mapped: NDArray[Any], first: int, last: int) -> NDArray[Any]:
    """Read a part of an array from the file that it is mapped to; copy it of one that is in memory."""
    name = getattr(mapped, "filename", None)
    if name is None or mapped.ndim > 1:
        return mapped[first:last].copy()
    count = min(last, len(mapped)) - first
    return np.fromfile(name, mapped.dtype, count, offset=first * mapped.itemsize)


def join_rows(parts: Sequence[RaggedArray]) -> RaggedArray:
    """Return the rows of several, one behind the other."""
    ends = np.cumsum([0, *(len(part.steps) for part in parts)])
    offsets = [part.offsets[1:] + end for part, end in zip(parts, ends, strict=False)]
    return RaggedArray(
        np.concatenate([part.steps for part in parts]), np.concatenate([np.zeros(1, np.int64), *offsets])
    )


@final
class RaggedWriter:
    """Appends rows to their two files, with a bounded buffer."""

    def __init__(self, folder: Path, name: str, dtype: DTypeLike = np.int32) -> None:
        self._dtype, self._end = dtype, 0
        self._files = [(folder / f"{name}.{kind}").open("wb") for kind in ("values", "offsets")]
        self._buffers = [bytearray(), bytearray(np.int64(0).tobytes())]

    def add(self, row: Sequence[int] | NDArray[Any]) -> None:
        self._end += len(row)
        self._buffers[0] += np.asarray(row, self._dtype).tobytes()
        self._buffers[1] += np.int64(self._end).tobytes()
        if len(self._buffers[0]) >= BUFFERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        for file, buffer in zip(self._files, self._buffers, strict=True):
            file.write(buffer)
            buffer.clear()

    def __enter__(self) -> RaggedWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._flush()
        for file in self._files:
            file.close()


class SideLimit(NamedTuple):
    """The most steps of a side. A longer one is cut to its first steps, or its pair is left out."""

    most: int
    is_cut: bool = False


@final
@dataclass(frozen=True)
class Store:
    """Both sides of a corpus, a hash of each pair's text, and which pairs were left out.

    `left_out` counts them by reason; `first_left_out` has the (row, side) of the first for each reason. `num_cut` has
    the number of cut sources, and of cut targets.
    """

    source: RaggedArray
    target: RaggedArray
    hashes: NDArray[np.uint64]
    left_out: dict[str, int]
    first_left_out: dict[str, tuple[int, int]]
    key: str  # a hash of everything it was made from
    num_cut: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        return len(self.source)


Encode = Callable[[str], Sequence[int]]
EncodePair = Callable[[Pair], tuple[Sequence[int], Sequence[int]]]
Measure = Callable[[Sequence[int]], int]
Rewrite = Callable[[Pair], Pair]
Limits = tuple[SideLimit, SideLimit]  # of sources and of targets
TOO_LONG = ("too long (source)", "too long (target)")


def prepare_store(
    root: Path,
    pairs: Callable[[], Iterable[Pair]],
    files: Iterable[Path],
    *,
    encode: EncodePair,
    identity: dict[str, Any],
    limits: Limits,
    measure: Measure = len,
    rewrite: Rewrite = lambda pair: pair,
) -> Store:
    """Return the store of these files under `root`, made now or found; `identity` has all else its ids depend on.

    Pairs with a blank side or a side beyond its limit are left out and counted, or cut; `measure` returns the number of
    steps of a source. Pairs are encoded as `rewrite` returns them, and known again as they are in the files.
    """
    key = content_hash(files, {**identity, "limits": limits, "format": FORMAT})
    return _open_store(
        make_once(root, key, lambda folder: _write(folder, pairs(), rewrite, encode, (measure, len), limits))
    )


def encode_sides(source: Encode, target: Encode) -> EncodePair:
    """Return what encodes each side of a pair by itself."""
    return lambda pair: (source(pair.source), target(pair.target))


def make_once(root: Path, key: str, write: Callable[[Path], None]) -> Path:
    """Return the folder `root/key`; write it first if it isn't there. It is complete or absent: `meta.json` is last."""
    folder = root / key
    if not (folder / "meta.json").exists():
        root.mkdir(parents=True, exist_ok=True)
        _forget_old_drafts(root)
        draft = Path(tempfile.mkdtemp(dir=root, prefix=".draft-"))
        try:
            write(draft)
            draft.rename(folder)
        except OSError:
            if not (folder / "meta.json").exists():  # another run may have made it meanwhile
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder


def _forget_old_drafts(root: Path) -> None:
    """Remove drafts of killed processes; younger ones may still be written."""
    for draft in root.glob(".draft-*"):
        if time.time() - draft.stat().st_mtime > A_DAY:
            shutil.rmtree(draft, ignore_errors=True)


def hash_pair(pair: Pair) -> bytes:
    """Return eight bytes that stand for a pair's text."""
    return hashlib.blake2b(f"{pair.source}\t{pair.target}".encode(), digest_size=8).digest()


def count_duplicates(pairs: Iterable[Pair], stores: Iterable[Store]) -> int:
    """Count the pairs that are also in a store; memory grows with these pairs, not with the stores."""
    own = np.frombuffer(b"".join(map(hash_pair, pairs)), np.uint64)
    known = np.unique(own)
    seen = np.zeros(len(known), bool)
    for store in stores:
        for at in range(0, len(store) if len(known) else 0, HASHES_AT_ONCE):
            part = read_part(store.hashes, at, at + HASHES_AT_ONCE)
            place = np.searchsorted(known, part).clip(max=len(known) - 1)
            seen[place[known[place] == part]] = True
    return int(np.isin(own, known[seen]).sum())


def _open_store(folder: Path) -> Store:
    stored = json.loads((folder / "meta.json").read_text("utf-8"))
    first = {reason: (row, side) for reason, (row, side) in stored["first_left_out"].items()}
    sides = RaggedArray.open(folder, "source"), RaggedArray.open(folder, "target")
    hashes, num_cut = _map_file(folder / "pairs.hashes", np.uint64), tuple(stored["num_cut"])
    return Store(*sides, hashes, stored["left_out"], first, folder.name, num_cut)


def _write(
    folder: Path,
    pairs: Iterable[Pair],
    rewrite: Rewrite,
    encode: EncodePair,
    measure: Iterable[Measure],
    limits: Limits,
) -> None:
    left_out, num_cut = dict.fromkeys(("blank", *TOO_LONG), 0), [0, 0]
    first: dict[str, tuple[int, int]] = {}
    with ExitStack() as stack:
        sides = [stack.enter_context(RaggedWriter(folder, name)) for name in ("source", "target")]
        hashes = stack.enter_context((folder / "pairs.hashes").open("wb"))
        for row, pair in enumerate(pairs):
            ids = encode(rewrite(pair))
            lengths = [measure_side(side) for measure_side, side in zip(measure, ids, strict=True)]
            long = [length > limit.most for length, limit in zip(lengths, limits, strict=True)]
            if problem := _problem(pair, long, limits):
                reason, side = problem
                left_out[reason] += 1
                first.setdefault(reason, (row, side))
                continue
            hashes.write(hash_pair(pair))
            for side, writer in enumerate(sides):
                num_cut[side] += long[side]
                writer.add(ids[side][: limits[side].most] if long[side] else ids[side])
    counts = {"left_out": left_out, "first_left_out": first, "num_cut": num_cut}
    (folder / "meta.json").write_text(json.dumps(counts), "utf-8")


def _problem(pair: Pair, long: Sequence[bool], limits: Limits) -> tuple[str, int] | None:
    """Return why a pair is left out, and by which side, or None."""
    if "" in pair:
        return "blank", pair.index("")
    wrong = [side for side, limit in enumerate(limits) if long[side] and not limit.is_cut]
    return (TOO_LONG[wrong[0]], wrong[0]) if wrong else None


def _map_file(path: Path, dtype: Any) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r")


def content_hash(files: Iterable[Path], identity: dict[str, Any]) -> str:
    """Return a hash of files and settings, which names what is made from them."""
    digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16)
    for path in files:
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "blake2b").digest())
    return digest.hexdigest()
