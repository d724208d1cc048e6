"""Labelled texts of a run: their section, their sets, and what is said about them before training."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator
from rich.console import Console

from saccade.config.base import Positive, Section, Share
from saccade.data.labels import labelled
from saccade.data.labels.labelled import Spelling, Text, read_labelled
from saccade.data.labels.windows import EncodedTexts, encode_texts
from saccade.data.text.corpus import find_files
from saccade.errors import UserError
from saccade.tasks import console as watch

Place = str | Annotated[int, Field(ge=0)]


class ColumnNames(Section):
    """What a file's columns hold: names from its header or JSON keys, or positions from 0 where there is no header."""

    label: Place = "label"
    text: Place = "text"
    dialogue: Place | None = Field(default=None, description="Which dialogue a text belongs to.")
    speaker: Place | None = Field(default=None, description="Who said it.")

    @model_validator(mode="after")
    def _check(self) -> ColumnNames:
        given = [column for _, column in self if column is not None]
        if len({isinstance(column, int) for column in given}) > 1:
            raise ValueError(f"names and positions given together ({', '.join(map(str, given))}); allowed: one kind")
        return self


class ClassifyData(Section):
    """Where labelled texts come from: .tsv, .csv, .jsonl, or plain lines that begin with the label."""

    train: str = Field(description="What it learns from: a file (plain or .gz), a folder or a glob.")
    valid: str | None = Field(default=None, description="What is scored in training; the best model on it is kept.")
    valid_share: Share = Field(
        default=0.1, gt=0, description="Without valid: the share of train that is held out for it, by chance."
    )
    test: str | None = Field(default=None, description="What is scored at the end; never trained on.")
    columns: ColumnNames = ColumnNames()
    lowercase: bool = False
    split_punctuation: bool = Field(default=False, description="Every sign outside a word is a word.")
    context: Annotated[int, Field(ge=0)] = Field(
        default=0, description="How many texts before it in its dialogue a text sees."
    )
    max_length: Positive = Field(default=256, description="A longer text is cut to so many tokens, and counted.")

    @model_validator(mode="after")
    def _check(self) -> ClassifyData:
        if self.context and self.columns.dialogue is None:
            raise ValueError(f"context: {self.context} given; it needs the column of the dialogue (columns.dialogue)")
        return self

    @property
    def places(self) -> labelled.LabelColumns:
        """The columns, as reading takes them."""
        return labelled.LabelColumns(**self.columns.model_dump())

    @property
    def spelling(self) -> Spelling:
        """How texts are written for the tokenizer."""
        return Spelling(self.lowercase, self.split_punctuation)


def sets(data: ClassifyData, seed: int) -> dict[str, list[Text]]:
    """The texts of every set; where no validation set is given, some of those to train on."""
    files = {"train": data.train, "valid": data.valid, "test": data.test}
    found = {
        name: list(read_labelled(find_files(f"data.{name}", pattern), data.places))
        for name, pattern in files.items()
        if pattern is not None
    }
    if data.valid is None:
        found["train"], found["valid"] = _held_out(found["train"], data.valid_share, seed)
    return found


def _held_out(texts: list[Text], share: float, seed: int) -> tuple[list[Text], list[Text]]:
    """Texts to train on and others to validate, by chance; a dialogue stays together."""
    encoded = encode_texts(texts, lambda _: [0], [], context=1)
    dialogues = encoded.runs(len(texts))
    chosen = np.random.default_rng(seed).random(len(dialogues)) < share
    if not 0 < chosen.sum() < len(dialogues):
        what = f"{share} given; of {len(dialogues)} texts (or dialogues) it leaves none on one side"
        raise UserError(f"data.valid_share: {what}; give data.valid")
    is_held = np.repeat(chosen, [len(run) for run in dialogues])
    pairs = list(zip(texts, is_held.tolist(), strict=True))
    return [text for text, held in pairs if not held], [text for text, held in pairs if held]


def fingerprint(texts: list[Text]) -> str:
    """What tells these texts from any others."""
    content = hashlib.blake2b(digest_size=16)
    for text in texts:
        content.update("\t".join(text).encode() + b"\n")
    return content.hexdigest()


def say(
    sets: dict[str, list[Text]],
    encoded: dict[str, EncodedTexts],
    labels: list[str],
    console: Console,
) -> None:
    """How much there is, and what to know about it."""
    for name, texts in sets.items():
        counts, part = Counter(text.label for text in texts), encoded[name]
        line = f"data.{name}: {len(texts):,} texts, {len(part.token_N):,} tokens"
        if part.context:
            line += f" in {len(part.runs(len(texts))):,} dialogues"
        most, count = counts.most_common(1)[0]
        watch.say(
            console, f"{line}, {len(counts)} labels; the most frequent, {most}, has {100 * count / len(texts):.1f}%"
        )
        if part.num_cut:
            watch.say(console, f"data.{name}: {part.num_cut:,} texts are cut to data.max_length", style="yellow")
        if unknown := sorted(set(counts) - set(labels)):
            what = f"labels that data.train doesn't have, which count as wrong: {', '.join(unknown)}"
            watch.say(console, f"data.{name}: {what}", style="yellow")
