"""The labelled texts of a run: reading them, and what is said about them before training."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from rich.console import Console

from saccade.config.base import HeldOutPart
from saccade.data.held_out import Amount, hold_out
from saccade.data.kept import read_once
from saccade.data.labels.documents import EncodedDocuments, EncodedInputs
from saccade.data.labels.labelled import Text, read_labelled, split_labels
from saccade.data.labels.windows import encode_texts
from saccade.data.text.corpus import find_files
from saccade.data.text.headers import ODD, is_odd
from saccade.tasks import console as watch
from saccade.tasks.classify.config import ClassifyData, LabelledFiles


def read_sets(data: LabelledFiles) -> dict[str, list[Text]]:
    """Read the texts of every set, and hold out a part of train if it is asked for."""
    files = {"train": data.train, "valid": data.valid, "test": data.test}
    found = {name: _read(data, name, pattern) for name, pattern in files.items() if isinstance(pattern, str)}
    if isinstance(data.valid, HeldOutPart):
        found["train"], found["valid"] = _hold_out(found["train"], data.valid.amount)
    return {name: found[name] for name in files if name in found}


def read_scored(data: LabelledFiles, name: Literal["valid", "test"]) -> list[Text]:
    """Read the texts of one set; others are read only if it is a part of them."""
    pattern = getattr(data, name)
    return _read(data, name, pattern) if isinstance(pattern, str) else read_sets(data)[name]


def _read(data: LabelledFiles, name: str, pattern: str) -> list[Text]:
    def read() -> list[Text]:
        return list(read_labelled(find_files(f"data.{name}", pattern), data.places))

    return read_once((name, pattern, data.places), read)


def _hold_out(texts: list[Text], amount: Amount) -> tuple[list[Text], list[Text]]:
    """Return texts to train on and others to validate; a dialogue stays together."""
    encoded = encode_texts(texts, lambda _: [0], [], context=1)
    dialogues = [texts[run.start : run.stop] for run in encoded.runs(len(texts))]
    parts: tuple[list[Text], list[Text]] = ([], [])
    for dialogue, is_held in zip(dialogues, hold_out(dialogues, lambda text: text.text, amount), strict=True):
        parts[is_held].extend(dialogue)
    return parts


def fingerprint(texts: list[Text]) -> str:
    """Hash texts, to tell them from any others."""
    content = hashlib.blake2b(digest_size=16)
    for text in texts:
        content.update("\t".join(text).encode() + b"\n")
    return content.hexdigest()


def say(
    sets: dict[str, list[Text]],
    encoded: Mapping[str, EncodedInputs],
    labels: list[str],
    data: ClassifyData,
    console: Console,
) -> None:
    """Print how much there is, and what to know about it."""
    held, separator = data.valid, data.separator
    if isinstance(held, HeldOutPart):
        num_held, num_left = len(sets["valid"]), len(sets["train"])
        said = f"{num_held:,} of the {num_held + num_left:,} texts of data.train, chosen by a hash of the text"
        watch.say(console, f"data.valid: {said} ({held.amount})")
    for name, texts in sets.items():
        part = encoded[name]
        counts = Counter(label for text in texts for label in split_labels(text.label, separator))
        line = f"data.{name}: {len(texts):,} texts, {part.num_tokens:,} tokens"
        if isinstance(part, EncodedDocuments):
            line += f", {len(part.sentences) / len(texts):.1f} sentences a text"
        if part.context:
            line += f" in {len(part.runs(len(texts))):,} dialogues"
        if separator is not None:
            bare = sum(not text.label for text in texts)
            line += f", {counts.total() / len(texts):.1f} labels a text ({bare:,} have none)"
        most, count = (counts or Counter({"none": 0})).most_common(1)[0]
        watch.say(
            console, f"{line}, {len(counts)} labels; the most frequent, {most}, has {100 * count / len(texts):.1f}%"
        )
        if is_odd(text.label for text in texts):
            watch.say(console, f"data.{name}, first text: {ODD}", style="yellow")
        if part.num_cut:
            limit = "max_sentences" if isinstance(part, EncodedDocuments) else "max_length"
            watch.say(console, f"data.{name}: {part.num_cut:,} texts are cut to data.{limit}", style="yellow")
        if unknown := sorted(set(counts) - set(labels)):
            effect = "which count as wrong" if separator is None else "which validation leaves out"
            what = f"labels that data.train doesn't have, {effect}: {', '.join(unknown)}"
            watch.say(console, f"data.{name}: {what}", style="yellow")
