"""Stories with a question and its answer: from TSV, CSV or JSONL, or one text whose last sentence is the question."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from saccade.data.labels.labelled import Spelling
from saccade.data.text import sentences
from saccade.data.text.corpus import clean, read_raw_lines
from saccade.data.text.tables import Column, as_text, has_columns, read_rows
from saccade.data.text.tokenizer import PAD, Tokenizer
from saccade.errors import UserError

OPTIONAL = ("answer", "facts", "kind")
NO_ANSWER = -100  # what torch's losses leave out


class Story(NamedTuple):
    """Sentences in order, a question about them, and its answer if it is known.

    `facts` are the numbers, from 0, of the sentences that tell the answer; `kind` is the question's, for scores.
    """

    sentences: tuple[str, ...]
    question: str
    answer: str = ""
    facts: tuple[int, ...] = ()
    kind: str = ""


class StoryColumns(NamedTuple):
    """The columns of a file: names from its header (JSON keys), or positions from 0."""

    story: Column = "story"
    question: Column = "question"
    answer: Column = "answer"
    facts: Column | None = "facts"
    kind: Column | None = "kind"

    def present(self) -> dict[str, Column]:
        return {name: column for name, column in self._asdict().items() if column is not None}


def split_story(text: str) -> tuple[str, ...]:
    """Split a text into sentences; a line ends one, too."""
    return tuple(filter(None, (clean(span.text) for span in sentences.split(text))))


def parse_story(text: str) -> Story:
    """Read a text as a story and, in its last sentence, a question."""
    *told, question = split_story(text) or ("",)
    return Story(tuple(told), question)


def read_stories(paths: Iterable[Path], columns: StoryColumns, *, needs_answer: bool = True) -> Iterator[Story]:
    """Read the stories of files in order; to learn or to be scored, each needs an answer."""
    paths = list(paths)
    found = itertools.chain.from_iterable(_read_file(path, columns, needs_answer) for path in paths)
    first = next(found, None)
    if first is None:
        raise UserError(f"{', '.join(map(str, paths))}: it is empty; there must be at least one story")
    return itertools.chain([first], found)


def _read_file(path: Path, columns: StoryColumns, needs_answer: bool) -> Iterator[Story]:
    if not has_columns(path):
        raise UserError(f"{path}: stories are read from .jsonl, .tsv or .csv files (.gz, too) with columns")
    rows = read_rows(
        path,
        read_raw_lines(path),
        lambda *_: columns.present(),
        optional=OPTIONAL[needs_answer:],
        to_text=_as_text,
    )
    for number, texts in rows:
        if texts:
            yield _make_story(f"{path}:{number}", texts, needs_answer)


def _as_text(place: str, key: str, value: Any) -> str:
    """Return a list of sentences as lines, and a list of numbers with spaces between them."""
    if not isinstance(value, list):
        return as_text(place, key, value)
    if all(isinstance(one, str) for one in value):
        return "\n".join(as_text(place, key, " ".join(one.split())) for one in value)
    if all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        return " ".join(map(str, value))
    raise UserError(f"{place}: {key!r} is {json.dumps(value)[:40]}; a list must hold sentences, or their numbers")


def _make_story(place: str, texts: dict[str, str], needs_answer: bool) -> Story:
    told, question, answer = split_story(texts["story"]), clean(texts["question"]), clean(texts.get("answer", ""))
    if not told or not question:
        raise UserError(f"{place}: the {'question' if told else 'story'} is empty")
    if needs_answer and not answer:
        raise UserError(f"{place}: the answer is empty")
    given = texts.get("facts", "").replace(",", " ").split()
    if wrong := [one for one in given if not one.isdecimal() or int(one) >= len(told)]:
        allowed = f"the number of a sentence, 0 to {len(told) - 1}"
        raise UserError(f"{place}: the fact {wrong[0]!r} given; a fact must be {allowed}")
    return Story(told, question, answer, tuple(map(int, given)), clean(texts.get("kind", "")))


class StoryBatch(NamedTuple):
    """B questions, their stories and answers. Sentences that come again stand once: `ids_UW` has a row for each, and

    `sentence_BS` says which rows make a story, the last sentence first; `length_B` counts them.
    """

    ids_UW: Tensor
    sentence_BS: Tensor
    length_B: Tensor
    question_B: Tensor
    answer_B: Tensor

    @property
    def num_items(self) -> int:
        return len(self.length_B)

    def to(self, device: torch.device) -> StoryBatch:
        return StoryBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


@final
class EncodedStories:
    """Stories as ids: every sentence once, with at most `max_length` words, and the last `max_sentences` of each story.

    `num_cut` counts the stories whose first sentences are left out, or of which a sentence lost words.
    """

    def __init__(
        self,
        stories: Sequence[Story],
        tokenizer: Tokenizer,
        spelling: Spelling,
        answers: Sequence[str],
        *,
        max_sentences: int,
        max_length: int,
    ) -> None:
        self._rows: dict[str, int] = {}
        self._ids: list[list[int]] = []
        self._known = {answer: index for index, answer in enumerate(answers)}
        self._encode, self._max_length = (lambda text: tokenizer.encode(spelling(text))), max_length
        self.num_cut, self._stories = 0, list[tuple[list[int], int, int]]()
        for story in stories:
            texts = [*story.sentences[-max_sentences:], story.question]
            *rows, question = map(self._row_of, texts)
            self.num_cut += len(texts) <= len(story.sentences) or any(
                len(self._ids[row]) > max_length for row in (*rows, question)
            )
            self._stories.append((rows[::-1], question, self._known.get(story.answer, NO_ANSWER)))

    def __len__(self) -> int:
        return len(self._stories)

    def _row_of(self, text: str) -> int:
        if text not in self._rows:
            self._rows[text] = len(self._ids)
            self._ids.append(self._encode(text))
        return self._rows[text]

    def batch(self, numbers: Sequence[int] | np.ndarray[Any, Any]) -> StoryBatch:
        """Make a batch of some stories."""
        chosen = [self._stories[number] for number in numbers]
        used, place = np.unique([row for rows, question, _ in chosen for row in (*rows, question)], return_inverse=True)
        lengths = [len(rows) for rows, _, _ in chosen]
        sentence_BS = np.zeros((len(chosen), max(1, *lengths)), np.int64)
        ends = np.cumsum(np.array(lengths) + 1)
        for index, (end, length) in enumerate(zip(ends, lengths, strict=True)):
            sentence_BS[index, :length] = place[end - length - 1 : end - 1]
        ids = [self._ids[row][: self._max_length] for row in used]
        ids_UW = np.full((len(ids), max(1, *map(len, ids))), PAD, np.int64)
        for row, words in zip(ids_UW, ids, strict=True):
            row[: len(words)] = words
        columns = (ids_UW, sentence_BS, lengths, place[ends - 1], [answer for _, _, answer in chosen])
        return StoryBatch(*(torch.as_tensor(np.asarray(column, np.int64)) for column in columns))
