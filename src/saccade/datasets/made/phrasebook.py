"""The phrasebook, English and French, for text to text: short sentences, each with one right translation."""

from __future__ import annotations

from pathlib import Path

from saccade.errors import UserError
from saccade.files import replace_file
from saccade.lab.phrasebook import grammar

SENTENCES = 80_000
NUM_VALID, NUM_TEST = 300, 1000


def make_phrasebook(folder: Path) -> None:
    """Write train, valid and test, each as .en and .fr."""
    write_phrasebook(folder, sentences=SENTENCES, seed=1)


def write_phrasebook(folder: Path, *, sentences: int, seed: int) -> None:
    """Write the phrasebook's files, train.en last: if it is there, all files are complete."""
    if (folder / "train.en").exists():
        found = len((folder / "train.en").read_text("utf-8").splitlines())
        if found != sentences:
            wanted = f"{folder} holds {found:,} sentences, {sentences:,} are wanted"
            raise UserError(f"{wanted}; give another folder (--out), or delete this one")
        return
    parts = zip(("train", "valid", "test"), grammar.split(sentences, NUM_VALID, NUM_TEST, seed=seed), strict=True)
    for name, pairs in reversed(list(parts)):
        for ending, side in (("fr", 1), ("en", 0)):
            with replace_file(folder / f"{name}.{ending}") as draft:
                draft.write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
