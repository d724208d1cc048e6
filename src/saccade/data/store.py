"""Token ids on disk, memory-mapped: prepared once, found again by a hash of what they were made from."""

from __future__ import annotations

import array
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from saccade.data.corpus import Pair

FORMAT = 2  # another number, and every store is made anew
BUFFERED_TOKENS = 1 << 20
A_DAY = 86_400.0
HASHES_AT_ONCE = 1 << 20


@final
class TokenSide:
    """One side of a store: all ids in a row, and where each sentence begins."""

    def __init__(self, folder: Path, name: str) -> None:
        self._tokens: NDArray[np.int32] = _mapped(folder / f"{name}.tokens", np.int32)
        self._offsets: NDArray[np.int64] = _mapped(folder / f"{name}.offsets", np.int64)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        return self._tokens[self._offsets[index] : self._offsets[index + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of every sentence."""
        return np.diff(self._offsets)


@final
@dataclass(frozen=True)
class Store:
    """Both sides, a hash of each pair's text, how many pairs were left out by reason, and the first (row, side)."""

    source: TokenSide
    target: TokenSide
    hashes: NDArray[np.uint64]
    left_out: dict[str, int]
    first_left_out: dict[str, tuple[int, int]]
    key: str  # a hash of everything it was made from

    def __len__(self) -> int:
        return len(self.source)


Encode = Callable[[str], Sequence[int]]


def prepare(
    root: Path,
    pairs: Callable[[], Iterable[Pair]],
    files: Iterable[Path],
    *,
    encode: tuple[Encode, Encode],
    identity: dict[str, Any],
    max_length: int,
) -> Store:
    """The store of these files under `root`, made now or found; `identity` is whatever else its ids depend on.

    Pairs with a blank side or more than `max_length` tokens on a side are left out and counted.
    """
    key = _hash(files, {**identity, "max_length": max_length, "format": FORMAT})
    folder = root / key
    if not (folder / "meta.json").exists():
        root.mkdir(parents=True, exist_ok=True)
        _forget_old_drafts(root)
        draft = Path(tempfile.mkdtemp(dir=root, prefix=".draft-"))
        try:
            _write(draft, pairs(), encode, max_length)
            draft.rename(folder)
        except OSError:
            if not (folder / "meta.json").exists():  # else another run made the same meanwhile
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return _opened(folder)


def _forget_old_drafts(root: Path) -> None:
    """What a kill left behind; younger ones may be at work."""
    for draft in root.glob(".draft-*"):
        if time.time() - draft.stat().st_mtime > A_DAY:
            shutil.rmtree(draft, ignore_errors=True)


def hashed(pair: Pair) -> bytes:
    """Eight bytes that stand for a pair's text."""
    return hashlib.blake2b(f"{pair.source}\t{pair.target}".encode(), digest_size=8).digest()


def count_seen(pairs: Iterable[Pair], stores: Iterable[Store]) -> int:
    """How many of the pairs are in a store too; memory grows with these pairs, not with the stores."""
    own = np.frombuffer(b"".join(map(hashed, pairs)), np.uint64)
    known = np.unique(own)
    seen = np.zeros(len(known), bool)
    for store in stores:
        for at in range(0, len(store) if len(known) else 0, HASHES_AT_ONCE):
            part = store.hashes[at : at + HASHES_AT_ONCE]
            place = np.searchsorted(known, part).clip(max=len(known) - 1)
            seen[place[known[place] == part]] = True
    return int(np.isin(own, known[seen]).sum())


def _opened(folder: Path) -> Store:
    stored = json.loads((folder / "meta.json").read_text("utf-8"))
    first = {reason: (row, side) for reason, (row, side) in stored["first_left_out"].items()}
    sides = TokenSide(folder, "source"), TokenSide(folder, "target")
    return Store(*sides, _mapped(folder / "pairs.hashes", np.uint64), stored["left_out"], first, folder.name)


def _write(folder: Path, pairs: Iterable[Pair], encode: tuple[Encode, Encode], max_length: int) -> None:
    left_out = {"blank": 0, "too long": 0}
    first: dict[str, tuple[int, int]] = {}
    with ExitStack() as stack:
        sides = [stack.enter_context(_Writer(folder, name)) for name in ("source", "target")]
        hashes = stack.enter_context((folder / "pairs.hashes").open("wb"))
        for row, pair in enumerate(pairs):
            ids = [encode_side(text) for encode_side, text in zip(encode, pair, strict=True)]
            if problem := _problem(pair, ids, max_length):
                reason, side = problem
                left_out[reason] += 1
                first.setdefault(reason, (row, side))
                continue
            hashes.write(hashed(pair))
            for writer, tokens in zip(sides, ids, strict=True):
                writer.add(tokens)
    (folder / "meta.json").write_text(json.dumps({"left_out": left_out, "first_left_out": first}), "utf-8")


def _problem(pair: Pair, ids: Sequence[Sequence[int]], max_length: int) -> tuple[str, int] | None:
    """Why a pair is left out, and by which side."""
    if "" in pair:
        return "blank", pair.index("")
    long = [side for side, tokens in enumerate(ids) if len(tokens) > max_length]
    return ("too long", long[0]) if long else None


@final
class _Writer:
    """Appends sentences to a side's two files, with a bounded buffer."""

    def __init__(self, folder: Path, name: str) -> None:
        self._files = [(folder / f"{name}.{kind}").open("wb") for kind in ("tokens", "offsets")]
        self._tokens, self._offsets, self._end = array.array("i"), array.array("q", [0]), 0

    def add(self, tokens: Sequence[int]) -> None:
        self._tokens.extend(tokens)
        self._end += len(tokens)
        self._offsets.append(self._end)
        if len(self._tokens) >= BUFFERED_TOKENS:
            self._flush()

    def _flush(self) -> None:
        for file, buffer in zip(self._files, (self._tokens, self._offsets), strict=True):
            buffer.tofile(file)
            del buffer[:]

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self._flush()
        for file in self._files:
            file.close()


def _mapped(path: Path, dtype: Any) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r")


def _hash(files: Iterable[Path], identity: dict[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16)
    for path in files:
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "blake2b").digest())
    return digest.hexdigest()
