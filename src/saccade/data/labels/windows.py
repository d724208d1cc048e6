"""Texts as ids with their labels, in batches that encode every text once, even where several windows hold it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.labels.labelled import Text, split_labels
from saccade.data.text.tokenizer import END, PAD

RUN = 32  # texts of a dialogue that are classified together in training
NO_LABEL = -1
OTHER, SAME, UNKNOWN_SPEAKER = 0, 1, 2


class TextBatch(NamedTuple):
    """U texts, and B windows of them: the texts before each one to classify, and that text at the end.

    `window_BW` has rows of `ids_US`; `speaker_BW` says whether each text has the speaker of the one to classify.
    """

    ids_US: Tensor
    length_U: Tensor
    window_BW: Tensor
    window_length_B: Tensor
    speaker_BW: Tensor
    label_B: Tensor

    def to(self, device: torch.device) -> TextBatch:
        return TextBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @property
    def num_items(self) -> int:
        """Number of texts to classify."""
        return len(self.label_B)


@final
@dataclass(frozen=True)
class EncodedTexts:
    """All texts of a set in one array: their tokens, labels, speakers, and where their dialogues begin."""

    token_N: NDArray[np.int32]
    start: NDArray[np.int64]  # of each text among the tokens, and the end
    label: NDArray[np.int64]  # a number for each text; with several labels at once, 1 or 0 for each of them, [N, V]
    speaker: NDArray[np.int64]  # -1: not known
    first: NDArray[np.int64]  # the first text of each one's dialogue
    context: int  # number of texts before it that a text sees
    is_cut: NDArray[np.bool_]  # whether each text was too long

    @property
    def num_cut(self) -> int:
        return int(self.is_cut.sum())

    @property
    def num_tokens(self) -> int:
        return len(self.token_N)

    def __len__(self) -> int:
        return len(self.label)

    def runs(self, longest: int = RUN) -> list[range]:
        """Return runs of neighbours in a dialogue that are classified together; without context, every text alone."""
        if not self.context:
            return [range(row, row + 1) for row in range(len(self))]
        begins = [*np.flatnonzero(self.first == np.arange(len(self))).tolist(), len(self)]
        return [
            range(row, min(row + longest, end))
            for begin, end in itertools.pairwise(begins)
            for row in range(begin, end, longest)
        ]

    def batches(self, texts_per_batch: int) -> Iterator[tuple[TextBatch, list[int]]]:
        """Yield every text once, in batches of like lengths or neighbours in a dialogue, with their rows."""
        runs = self.runs(texts_per_batch)
        if not self.context:
            length = np.diff(self.start)
            runs.sort(key=lambda run: int(length[run.start]))
        size = max(1, texts_per_batch // max(map(len, runs)))
        for part in (runs[start : start + size] for start in range(0, len(runs), size)):
            yield self.batch(part), [row for run in part for row in run]

    def batch(self, runs: Sequence[range]) -> TextBatch:
        """Return the texts of some runs, with the texts before them that they see."""
        seen = [np.arange(max(self.first[run.start], run.start - self.context), run.stop) for run in runs]
        judged = [rows >= run.start for rows, run in zip(seen, runs, strict=True)]
        return self._batch(np.concatenate(seen), np.flatnonzero(np.concatenate(judged)))

    def _batch(self, row_U: NDArray[np.int64], place_B: NDArray[np.int64]) -> TextBatch:
        """Return a batch of these rows, in which the rows at `place_B` are to be classified."""
        row_B = row_U[place_B]
        length_B = np.minimum(row_B - self.first[row_B], self.context) + 1
        step_W = np.arange(int(length_B.max()))
        window_BW = np.where(step_W < length_B[:, None], (place_B - length_B + 1)[:, None] + step_W, 0)
        speaker_BW, own_B1 = self.speaker[row_U][window_BW], self.speaker[row_B][:, None]
        same_BW = np.where(speaker_BW == own_B1, SAME, OTHER)
        same_BW[np.minimum(speaker_BW, own_B1) < 0] = UNKNOWN_SPEAKER
        ids_US, length_U = self._pad(row_U)
        arrays = (ids_US, length_U, window_BW, length_B, same_BW, self.label[row_B])
        return TextBatch(*(torch.from_numpy(np.ascontiguousarray(array, np.int64)) for array in arrays))

    def _pad(self, row_U: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        start_U1, length_U = self.start[row_U][:, None], self.start[row_U + 1] - self.start[row_U]
        step_S = np.arange(int(length_U.max()))
        real_US = step_S < length_U[:, None]
        ids_US = np.full(real_US.shape, PAD, np.int64)
        ids_US[real_US] = self.token_N[(start_U1 + step_S)[real_US]]
        return ids_US, length_U


def encode_texts(
    texts: Iterable[Text],
    encode: Callable[[str], list[int]],
    labels: Sequence[str],
    *,
    context: int = 0,
    max_length: int = 1 << 20,
    separator: str | None = None,
) -> EncodedTexts:
    """Encode texts as ids. A long text is cut, and a blank one becomes </s>, so that it has a vector."""
    speakers = dict[str, int]()
    rows, label, speaker, first = [], list[int | list[bool]](), list[int](), list[int]()
    dialogue, is_cut = "", list[bool]()
    for index, text in enumerate(texts):
        ids = encode(text.text) or [END]
        is_cut.append(len(ids) > max_length)
        rows.append(np.asarray(ids[:max_length], np.int32))
        label.append(number_labels(text.label, labels, separator))
        speaker.append(speakers.setdefault(text.speaker, len(speakers)) if text.speaker else -1)
        goes_on = index > 0 and text.dialogue != "" and text.dialogue == dialogue
        first.append(first[-1] if goes_on else index)
        dialogue = text.dialogue
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    columns: dict[str, list[Any]] = {"label": label, "speaker": speaker, "first": first}
    arrays = {name: np.asarray(column, np.int64) for name, column in columns.items()}
    return EncodedTexts(np.concatenate(rows), start, **arrays, context=context, is_cut=np.asarray(is_cut, bool))


def number_labels(label: str, labels: Sequence[str], separator: str | None) -> int | list[bool]:
    """Return the number of a text's label; of several, for each label whether the text has it.

    One that nobody knows is left out.
    """
    if separator is None:
        return labels.index(label) if label in labels else NO_LABEL
    own = set(split_labels(label, separator))
    return [one in own for one in labels]
