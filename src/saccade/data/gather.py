"""Reads many sentences of one or several stores at once, without a loop over rows that would block training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.data.store import RaggedArray
from saccade.data.text.tokenizer import PAD


class FlatSentences(NamedTuple):
    """The ids of some sentences in one array, one sentence behind the other, and the length of each."""

    ids: NDArray[np.int64]
    length_N: NDArray[np.int64]

    def starts(self) -> NDArray[np.int64]:
        """Return where each sentence begins if each gets one more id, and where the last one ends."""
        return np.concatenate([[0], np.cumsum(self.length_N + 1)])

    def put(self, row_T: NDArray[np.int64], mark: int, *, first: bool) -> None:
        """Write the sentences into a row, each with a mark before it (`first`) or behind it."""
        start_N = self.starts()
        row_T[np.arange(len(self.ids)) + np.repeat(np.arange(len(self.length_N)) + first, self.length_N)] = self.ids
        row_T[start_N[:-1] if first else start_N[1:] - 1] = mark

    def pad(self, mark: int, *, first: bool) -> NDArray[np.int64]:
        """Return a padded table with a sentence in each row and a mark before it (`first`) or behind it."""
        table = np.full((len(self.length_N), int(self.length_N.max()) + 1), PAD, np.int64)
        is_real = np.arange(table.shape[1]) <= self.length_N[:, None]
        marked = np.empty(len(self.ids) + len(self.length_N), np.int64)
        self.put(marked, mark, first=first)
        table[is_real] = marked
        return table


def gather_sentences(sides: Sequence[RaggedArray], rows: NDArray[np.int64]) -> FlatSentences:
    """Read rows, which count through all stores, in the order given; each store is read once."""
    starts = np.cumsum([0, *(len(side) for side in sides)])
    store_N = np.searchsorted(starts, rows, side="right") - 1
    row_N = rows - starts[store_N]
    begin_N, length_N = np.zeros_like(row_N), np.zeros_like(row_N)
    used = np.unique(store_N)
    for store in used:
        own = store_N == store
        begin_N[own] = sides[store].offsets[row_N[own]]
        length_N[own] = sides[store].offsets[row_N[own] + 1] - begin_N[own]
    first_N = np.cumsum(length_N) - length_N
    at = np.arange(int(length_N.sum())) + np.repeat(begin_N - first_N, length_N)
    if len(used) == 1:
        return FlatSentences(sides[used[0]].steps[at].astype(np.int64), length_N)
    ids, store_T = np.zeros(len(at), np.int64), np.repeat(store_N, length_N)
    for store in used:
        own = store_T == store
        ids[own] = sides[store].steps[at[own]]
    return FlatSentences(ids, length_N)
