"""Lists of spoken digit strings, made from recordings of single digits (Free Spoken Digit Dataset).

A line is `recordings/7_theo_12.wav 0.09 recordings/3_theo_40.wav TAB seven three`: the files to join, with the seconds
of silence between them, and the words. A string has one speaker and three to seven digits. Some training strings are
shorter, because a model learns its alignment from them first. Test strings use recordings 0 to 4, validation strings 5
to 7, training strings the others: no recording is in two lists.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

from saccade.errors import UserError
from saccade.files import replace_file

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>[^_]+)_(?P<number>\d+)\.wav")
NUMBERS = {"test": range(5), "valid": range(5, 8), "train": range(8, 10**6)}
LENGTHS = {"test": (3, 7), "valid": (3, 7), "train": (1, 7)}  # digits in a string
NUM_TRAIN, NUM_VALID, NUM_TEST = 40_000, 500, 2_000
PAUSES = (0.0, 0.3)  # seconds

Recordings = dict[str, dict[int, list[str]]]  # by speaker and digit


def run(
    recordings: Path, out: Path, *, train: int = NUM_TRAIN, valid: int = NUM_VALID, test: int = NUM_TEST, seed: int = 1
) -> dict[str, Path]:
    """Write train.tsv, valid.tsv and test.tsv into `out`; the same seed gives the same lists."""
    counts, written = {"train": train, "valid": valid, "test": test}, {}
    found = {name: _find_recordings(recordings, numbers, out) for name, numbers in NUMBERS.items()}
    for name, count in counts.items():
        chance = random.Random(f"{seed} {name}")
        written[name] = out / f"{name}.tsv"
        with replace_file(written[name]) as draft, draft.open("w", encoding="utf-8", newline="\n") as lines:
            lines.writelines(_draw_string(found[name], chance, *LENGTHS[name]) for _ in range(count))
    return written


def _find_recordings(folder: Path, numbers: range, out: Path) -> Recordings:
    """List the recordings with these numbers, with paths relative to the list."""
    if not folder.is_dir():
        raise UserError(f"there is no folder at {folder}")
    found: Recordings = {}
    place = Path(os.path.relpath(folder, out)).as_posix()
    for path in sorted(folder.glob("*.wav")):
        match = NAME.fullmatch(path.name)
        if match and int(match["number"]) in numbers:
            by_digit = found.setdefault(match["speaker"], {})
            by_digit.setdefault(int(match["digit"]), []).append(f"{place}/{path.name}")
    if not found:
        wanted = f"{numbers.start} to {numbers.stop - 1}" if numbers.stop < 100 else f"{numbers.start} and on"
        raise UserError(f"{folder}: no recording named <digit>_<speaker>_<number>.wav with a number of {wanted}")
    return found


def _draw_string(found: Recordings, chance: random.Random, shortest: int, longest: int) -> str:
    by_digit = found[chance.choice(sorted(found))]
    digits = chance.choices(sorted(by_digit), k=chance.randint(shortest, longest))
    files = [chance.choice(by_digit[digit]) for digit in digits]
    source = files[0] + "".join(f" {chance.uniform(*PAUSES):.2f} {file}" for file in files[1:])
    return f"{source}\t{' '.join(WORDS[digit] for digit in digits)}\n"
