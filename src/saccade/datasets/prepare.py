"""Turns public files into the files that recipes read."""

from __future__ import annotations

import functools
import gzip
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from saccade.datasets.material import Material
from saccade.errors import UserError
from saccade.lab import digits

Change = Callable[[bytes], bytes]


def write_packed(path: Path, content: bytes) -> None:
    """Write a file, gzipped if its name says so; equal contents make equal files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 6, mtime=0) if path.suffix == ".gz" else content)


def copy_files(material: Material, out: Path, *, names: Mapping[str, tuple[str, ...]], change: Change = bytes) -> None:
    """Write each file from the one that the material has under one of its names there."""
    for name, endings in names.items():
        write_packed(out / name, change(material.read(*endings)))


def copy_as(names: Mapping[str, str | tuple[str, ...]], change: Change = bytes) -> Callable[[Material, Path], None]:
    """Return a `prepare` that writes files from those of other names."""
    several = {name: (ending,) if isinstance(ending, str) else ending for name, ending in names.items()}
    return functools.partial(copy_files, names=several, change=change)


def to_utf8(content: bytes) -> bytes:
    """Turn Latin-1 into UTF-8; what is UTF-8 stays."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1").encode("utf-8")
    return content


def empty_blank_lines(content: bytes) -> bytes:
    """Make lines of white space empty."""
    return re.sub(rb"(?m)^[ \t\r]+$", b"", content)


def split_plays(material: Material, out: Path) -> None:
    """Write the first nine tenths of a text, by characters, and the rest."""
    text = material.read("input.txt").decode("utf-8")
    cut = int(0.9 * len(text))
    for name, part in (("train.txt", text[:cut]), ("valid.txt", text[cut:])):
        write_packed(out / name, part.encode("utf-8"))


def write_dialogues(material: Material, out: Path) -> None:
    """Join the files of dialogues (speaker|utterance|class) to one for each set, with the dialogue's name in front."""
    lines: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for path, content in sorted(material.matching(r"(?:.*/)?(train|val|test)/\d+\.txt")):
        name, dialogue = path.removesuffix(".txt").split("/")[-2:]
        for number, line in enumerate(content.decode("utf-8").splitlines(), 1):
            if len(fields := line.split("|")) != 3:
                raise UserError(f"{material}: {path}:{number}: speaker|utterance|class expected")
            lines[name].append("\t".join((dialogue, *fields)) + "\n")
    for name, rows in lines.items():
        if not rows:
            raise UserError(f"{material}: there is no {name}/<dialogue>.txt in it")
        write_packed(out / f"{name}.tsv.gz", "".join(rows).encode("utf-8"))


def write_spoken_digits(material: Material, out: Path) -> None:
    """Copy the recordings <digit>_<speaker>_<number>.wav and write the lists of digit strings."""
    for path, content in material.matching(r"(?:.*/)?\d_[^/_]+_\d+\.wav"):
        write_packed(out / "recordings" / path.rsplit("/", 1)[-1], content)
    if not (out / "recordings").exists():
        raise UserError(f"{material}: there is no <digit>_<speaker>_<number>.wav in it")
    digits.run(out / "recordings", out)
