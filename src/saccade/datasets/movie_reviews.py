"""Film reviews in ten folds, as those who test on them cut them (Pang & Lee 2004)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from saccade.datasets.material import Material
from saccade.datasets.prepare import to_utf8, write_packed
from saccade.errors import UserError

FOLDS = tuple(f"fold_{number}.jsonl.gz" for number in range(10))
REVIEW = r"(?:.*/)?(neg|pos)/cv(\d)\d\d_\d+\.txt"  # the first digit is the fold


def write_movie_reviews(material: Material, out: Path) -> None:
    """Write a file for each fold: a review a line, with its sentences, which are the lines of its file."""
    lines: dict[str, list[str]] = {name: [] for name in FOLDS}
    for fold, label, sentences in _read_reviews(material):
        lines[FOLDS[fold]].append(json.dumps({"label": label, "sentences": sentences}) + "\n")
    for name, rows in lines.items():
        if not rows:
            raise UserError(f"{material}: there is no (neg|pos)/cv{name[5]}<number>_<number>.txt in it")
        write_packed(out / name, "".join(rows).encode("utf-8"))


def _read_reviews(material: Material) -> Iterator[tuple[int, str, list[str]]]:
    """Yield fold, label and sentences: of text files, or of one file that has them all as objects."""
    for path, content in sorted(material.matching(REVIEW)):
        *_, label, name = path.split("/")
        lines = to_utf8(content).decode("utf-8").split("\n")
        yield int(name[2]), label, [" ".join(line.split()) for line in lines if line.strip()]
    for _, content in material.matching(r"(?:.*/)?reviews\.jsonl(?:\.gz)?"):
        for row in map(json.loads, content.decode("utf-8").splitlines()):
            yield row["fold"], row["label"], row["sentences"]
