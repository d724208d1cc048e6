"""Documents: texts that are read sentence by sentence, in batches of the sentences of several."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from saccade.data.labels.labelled import Lines, Text
from saccade.data.labels.windows import EncodedTexts, TextBatch, encode_texts, number_labels
from saccade.data.text import sentences
from saccade.data.text.corpus import clean
from saccade.data.text.tokenizer import END

STOP = re.compile(r"\s\.(?=\s|$)")  # a full stop that is a word
ENDS = re.compile(r"((?:\s[.!?])+)\s+(?=\S)")
WHOLE = 1 << 30  # bytes: a sentence is cut by its tokens


class ReadingLimits(NamedTuple):
    """Limits of a text: the texts before it in its dialogue, its tokens, or its sentences and their tokens.

    With `max_sentences`, a text is a document.
    """

    context: int = 0
    max_length: int = 1 << 20
    max_sentences: int | None = None


def split_document(text: str) -> list[str]:
    """Split a text into sentences; the end of a line ends one, too.

    In tokenised text, where full stops are words, these and their like end sentences whatever follows.
    """
    if isinstance(text, Lines):
        return text.split("\n")
    if STOP.search(text):
        found = ENDS.sub("\\1\n", text).split("\n")
    else:
        found = [span.text for span in sentences.split(text, WHOLE)]
    return [cleaned for sentence in found if (cleaned := clean(sentence))]


@final
@dataclass(frozen=True)
class EncodedDocuments:
    """The sentences of all documents of a set, as texts of dialogues, and the number of each document's last one."""

    sentences: EncodedTexts
    last: NDArray[np.int64]
    is_cut: NDArray[np.bool_]  # whether a document has more sentences than are read

    @property
    def num_cut(self) -> int:
        return int(self.is_cut.sum())

    @property
    def label(self) -> NDArray[np.int64]:
        return self.sentences.label[self.last]

    @property
    def num_tokens(self) -> int:
        return self.sentences.num_tokens

    @property
    def context(self) -> int:
        """Documents stand by themselves."""
        return 0

    def __len__(self) -> int:
        return len(self.last)

    def runs(self, longest: int = 1) -> list[range]:
        """Return every document alone."""
        del longest
        return [range(row, row + 1) for row in range(len(self))]

    def batches(self, texts_per_batch: int) -> Iterator[tuple[TextBatch, list[int]]]:
        """Yield every document once, in batches of like numbers of sentences, with their rows."""
        count = self.last - self.sentences.first[self.last]
        order = np.argsort(count, kind="stable").tolist()
        for start in range(0, len(order), texts_per_batch):
            rows = order[start : start + texts_per_batch]
            yield self.batch([range(row, row + 1) for row in rows]), rows

    def batch(self, runs: Sequence[range]) -> TextBatch:
        """Return the sentences of some documents; a window is all of a document's."""
        ends = [int(self.last[row]) for run in runs for row in run]
        return self.sentences.batch([range(end, end + 1) for end in ends])


def encode_documents(
    texts: Iterable[Text],
    encode: Callable[[str], list[int]],
    labels: Sequence[str],
    *,
    max_length: int,
    max_sentences: int,
    separator: str | None = None,
) -> EncodedDocuments:
    """Encode documents as ids. A sentence of more than `max_length` tokens is read in parts, as sentences are.

    Of a document with more than `max_sentences` the rest is cut; a blank one becomes </s>.
    """
    rows, label = list[NDArray[np.int32]](), list[int | list[bool]]()
    first, last = list[int](), list[int]()
    is_cut = list[bool]()
    for text in texts:
        encoded = (encode(sentence) for sentence in split_document(text.text))
        parts = [ids[start : start + max_length] for ids in encoded for start in range(0, len(ids), max_length)]
        kept = parts[:max_sentences] or [[END]]
        is_cut.append(len(parts) > max_sentences)
        first += [len(rows)] * len(kept)
        label += [number_labels(text.label, labels, separator)] * len(kept)
        rows += [np.asarray(ids, np.int32) for ids in kept]
        last.append(len(rows) - 1)
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    found = EncodedTexts(
        np.concatenate(rows),
        start,
        label=np.asarray(label, np.int64),
        speaker=np.full(len(rows), -1, np.int64),
        first=np.asarray(first, np.int64),
        context=max_sentences - 1,
        is_cut=np.zeros(len(rows), bool),
    )
    return EncodedDocuments(found, np.asarray(last, np.int64), np.asarray(is_cut, bool))


EncodedInputs = EncodedTexts | EncodedDocuments


def encode_inputs(
    texts: Iterable[Text],
    encode: Callable[[str], list[int]],
    labels: Sequence[str],
    limits: ReadingLimits,
    separator: str | None = None,
) -> EncodedInputs:
    """Encode what a classifier reads: texts with those before them, or documents by their sentences."""
    most = limits.max_length
    if limits.max_sentences is None:
        return encode_texts(texts, encode, labels, context=limits.context, max_length=most, separator=separator)
    sizes = {"max_length": most, "max_sentences": limits.max_sentences}
    return encode_documents(texts, encode, labels, separator=separator, **sizes)
