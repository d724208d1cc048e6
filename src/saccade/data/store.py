"""Token ids on disk, memory-mapped: prepared once, found again by a hash of what they were made from."""

from __future__ import annotations

import array
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from saccade.data.corpus import Pair

FORMAT = 1  # another number, and every store is made anew
BUFFERED_TOKENS = 1 << 20


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
    """Both sides, and how many pairs were left out when it was made, by reason."""

    source: TokenSide
    target: TokenSide
    left_out: dict[str, int]

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
        draft = Path(tempfile.mkdtemp(dir=root, prefix=".draft-"))
        try:
            _write(draft, pairs(), encode, max_length)
            shutil.rmtree(folder, ignore_errors=True)
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    left_out = json.loads((folder / "meta.json").read_text("utf-8"))["left_out"]
    return Store(TokenSide(folder, "source"), TokenSide(folder, "target"), left_out)


def _write(folder: Path, pairs: Iterable[Pair], encode: tuple[Encode, Encode], max_length: int) -> None:
    left_out = {"blank": 0, "too long": 0}
    with ExitStack() as stack:
        sides = [stack.enter_context(_Writer(folder, name)) for name in ("source", "target")]
        for pair in pairs:
            if not (pair.source and pair.target):
                left_out["blank"] += 1
                continue
            ids = [encode_side(text) for encode_side, text in zip(encode, pair, strict=True)]
            if max(len(side) for side in ids) > max_length:
                left_out["too long"] += 1
                continue
            for side, tokens in zip(sides, ids, strict=True):
                side.add(tokens)
    (folder / "meta.json").write_text(json.dumps({"left_out": left_out}), "utf-8")


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
