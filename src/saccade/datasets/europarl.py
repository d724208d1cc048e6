"""Europarl for word alignment: 300,000 pairs of the release v7, tokenised, without those that are not translations."""

from __future__ import annotations

import hashlib
import heapq
import io
import re
from collections.abc import Iterator
from pathlib import Path

from saccade.datasets.material import Material
from saccade.datasets.prepare import write_packed
from saccade.errors import UserError

SIZES = {"test": 3_000, "dev": 2_000, "train": 300_000}
SPARE = 20_000  # pairs more, of which some are equal or share a sentence with the held-out ones
LONGEST, LARGEST_RATIO = 50, 2.5  # words; words of the longer side for each of the shorter
TOKEN = re.compile(r"\w+(?:[-.,]\w+)*|'\w+|[^\w\s]")
Chosen = tuple[str, str]


def write_europarl(material: Material, out: Path) -> None:
    """Draw pairs by their hash, the same ones every time, and write each part as .de.gz and .en.gz."""
    sides = [material.read(f"europarl-v7.de-en.{side}") for side in ("de", "en")]
    if sides[0].count(b"\n") != sides[1].count(b"\n"):
        raise UserError(f"{material}: its two sides have different numbers of lines")
    drawn = heapq.nsmallest(sum(SIZES.values()) + SPARE, _read_pairs(*sides))
    parts = _split([pair for _, pair in drawn])
    for name, pairs in parts.items():
        for place, side in enumerate(("de", "en")):
            write_packed(out / f"{name}.{side}.gz", "".join(f"{pair[place]}\n" for pair in pairs).encode("utf-8"))


def _read_pairs(source: bytes, target: bytes) -> Iterator[tuple[bytes, Chosen]]:
    """Yield the pairs that may be translations, each with the hash that decides whether it is drawn."""
    for lines in zip(io.BytesIO(source), io.BytesIO(target), strict=True):
        words = [TOKEN.findall(line.decode("utf-8")) for line in lines]
        shorter, longer = sorted(map(len, words))
        if shorter and longer <= LONGEST and longer <= LARGEST_RATIO * shorter:
            pair = " ".join(words[0]), " ".join(words[1])
            yield hashlib.sha256("\t".join(pair).encode("utf-8")).digest()[:8], pair


def _split(pairs: list[Chosen]) -> dict[str, list[Chosen]]:
    """Split pairs so that no sentence is in two parts."""
    parts: dict[str, list[Chosen]] = {name: [] for name in SIZES}
    homes: dict[str, str] = {}
    names = iter(SIZES.items())
    name, size = next(names)
    for pair in dict.fromkeys(pairs):
        if len(parts[name]) == size:
            name, size = next(names, (name, 0))
            if not size:
                break
        if all(homes.setdefault(side, name) == name for side in pair):
            parts[name].append(pair)
    return parts
