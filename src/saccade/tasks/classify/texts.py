"""The labelled texts of a run: reading them, and what is said about them before training."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
from rich.console import Console

from saccade.data.labels.labelled import Text, read_labelled, split_labels
from saccade.data.labels.windows import EncodedTexts, encode_texts
from saccade.data.text.corpus import find_files
from saccade.errors import UserError
from saccade.tasks import console as watch
from saccade.tasks.classify.config import ClassifyData


def read_sets(data: ClassifyData, seed: int) -> dict[str, list[Text]]:
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
    separator: str | None,
    console: Console,
) -> None:
    """How much there is, and what to know about it."""
    for name, texts in sets.items():
        part = encoded[name]
        counts = Counter(label for text in texts for label in split_labels(text.label, separator))
        line = f"data.{name}: {len(texts):,} texts, {len(part.token_N):,} tokens"
        if part.context:
            line += f" in {len(part.runs(len(texts))):,} dialogues"
        if separator is not None:
            bare = sum(not text.label for text in texts)
            line += f", {counts.total() / len(texts):.1f} labels a text ({bare:,} have none)"
        most, count = (counts or Counter({"none": 0})).most_common(1)[0]
        watch.say(
            console, f"{line}, {len(counts)} labels; the most frequent, {most}, has {100 * count / len(texts):.1f}%"
        )
        if part.num_cut:
            watch.say(console, f"data.{name}: {part.num_cut:,} texts are cut to data.max_length", style="yellow")
        if unknown := sorted(set(counts) - set(labels)):
            effect = "which count as wrong" if separator is None else "which validation leaves out"
            what = f"labels that data.train doesn't have, {effect}: {', '.join(unknown)}"
            watch.say(console, f"data.{name}: {what}", style="yellow")
