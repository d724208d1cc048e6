"""Documents packed end to end into one stream of ids, and windows of it that a language model learns from.

A document's ids are followed by </s>. What is written at place n is ids[n]; what is read there is ids[n - 1], where <s>
stands for the </s> of the document before: a model reads <s> a b <s> c and writes a b </s> c </s>.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.text.tokenizer import END, START, UNKNOWN
from saccade.errors import UserError

Ids = NDArray[np.int32]
Places = NDArray[np.int64]


class Stream(NamedTuple):
    """The ids of documents, one behind the other, and counts: a document's end is a word and a character too."""

    ids: Ids
    num_documents: int
    num_words: int
    num_characters: int

    @property
    def num_unknown(self) -> int:
        return int((self.ids == UNKNOWN).sum())

    @property
    def key(self) -> str:
        """Hash the ids, to name files that are made from them."""
        return hashlib.blake2b(self.ids.tobytes(), digest_size=16).hexdigest()


def make_stream(documents: Iterable[str], encode: Callable[[str], Sequence[int]], field: str) -> Stream:
    """Encode documents into a stream."""
    parts, words, characters = list[Ids](), 0, 0
    for text in documents:
        parts.append(np.asarray([*encode(text), END], np.int32))
        words, characters = words + len(text.split()) + 1, characters + len(text) + 1
    if not parts:
        raise UserError(f"{field}: there is no text in it; every line is blank")
    return Stream(np.concatenate(parts), len(parts), words, characters)


class TextWindow(NamedTuple):
    """Rows of a stream: what is read and written, [B, T].

    Where a state is carried from window to window, `place` (0 or 1) says where it lies, and `is_first` that there is
    none yet.
    """

    read_BT: Tensor
    write_BT: Tensor
    place: Tensor
    is_first: Tensor

    @property
    def num_items(self) -> int:
        return self.write_BT.numel()

    def to(self, device: torch.device) -> TextWindow:
        return TextWindow(*(tensor.to(device, non_blocking=True) for tensor in self))


def cut_window(ids: Ids, starts: Places, steps: int, number: int = 0) -> TextWindow:
    """Cut rows of so many steps out of a stream; behind its end it begins again."""
    at_BT = starts[:, None] + np.arange(-1, steps)
    row_BT = ids[at_BT % len(ids)].astype(np.int64)
    read_BT = np.where(row_BT[:, :-1] == END, START, row_BT[:, :-1])
    flags = torch.tensor(number % 2), torch.tensor(number == 0)
    return TextWindow(torch.from_numpy(read_BT), torch.from_numpy(row_BT[:, 1:].copy()), *flags)


@final
class ShuffledWindows:
    """Every epoch cuts the stream into rows elsewhere, and puts them into batches at random.

    The stream is read as a ring, so that all rows have `steps` steps: the last one may go on at the beginning.
    """

    def __init__(self, ids: Ids, *, steps: int, batch_size: int, seed: int) -> None:
        self._ids, self._steps, self._size, self._seed = ids, steps, batch_size, seed

    def epoch(self, number: int) -> list[Places]:
        """Return where the rows of every batch of an epoch begin."""
        random = np.random.default_rng([self._seed, number])
        first = int(random.integers(self._steps))
        starts = random.permutation(np.arange(first, first + len(self._ids), self._steps))
        return np.split(starts, range(self._size, len(starts), self._size))

    def load(self, starts: Places) -> TextWindow:
        return cut_window(self._ids, starts, self._steps)


@final
class FollowingWindows:
    """`batch_size` readers side by side, each with its part of the stream: a row goes on where the last one ended.

    In every epoch the parts begin elsewhere. The stream is read as a ring: a reader may end in its neighbour's part.
    """

    def __init__(self, ids: Ids, *, steps: int, batch_size: int, seed: int) -> None:
        self._ids, self._steps, self._size, self._seed = ids, steps, batch_size, seed

    def epoch(self, number: int) -> list[tuple[Places, int]]:
        """Return where the rows of every window of an epoch begin, and the window's number."""
        random = np.random.default_rng([self._seed, number])
        part = -(-len(self._ids) // self._size)
        starts = int(random.integers(len(self._ids))) + np.arange(self._size) * part
        return [(starts + number * self._steps, number) for number in range(-(-part // self._steps))]

    def load(self, window: tuple[Places, int]) -> TextWindow:
        return cut_window(self._ids, window[0], self._steps, window[1])


def overlap_rows(length: int, steps: int, overlap: float) -> Iterator[tuple[int, int, int]]:
    """Yield rows (first, last, first scored) of at most `steps` places that score each place of a stream once.

    Each row but the first begins with a share of places that the row before has scored, so that none is written from
    little.
    """
    stride = max(1, round(steps * (1 - overlap)))
    last = min(steps, length)
    yield 0, last, 0
    while last < length:
        scored, last = last, min(last + stride, length)
        yield last - steps, last, scored
