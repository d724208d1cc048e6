"""E-mails and their subject lines (AESLC; Zhang 2019): in lower case, marks apart from words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from saccade.datasets.material import Material
from saccade.datasets.prepare import write_packed
from saccade.errors import UserError

PARTS = {"train": "train", "valid": "dev", "test": "test"}
FILES = tuple(f"{name}.jsonl.gz" for name in PARTS)
WORD = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")
SUBJECT = "\n@subject\n"


def write_aeslc(material: Material, out: Path) -> None:
    """Write train, valid and test; a mail without words or without a subject is left out."""
    for name, theirs in PARTS.items():
        pairs = [(normalise(mail), normalise(subject)) for mail, subject in _read(material, theirs)]
        lines = [json.dumps({"mail": mail, "subject": subject}, ensure_ascii=False) for mail, subject in pairs]
        kept = [line for line, pair in zip(lines, pairs, strict=True) if all(pair)]
        if not kept:
            raise UserError(f"{material}: there is no {theirs}.jsonl and no {theirs}/*.subject in it")
        write_packed(out / f"{name}.jsonl.gz", "".join(f"{line}\n" for line in kept).encode("utf-8"))


def normalise(text: str) -> str:
    """Return a text in lower case, with spaces around its marks."""
    return " ".join(WORD.findall(text.lower()))


def _read(material: Material, part: str) -> Iterator[tuple[str, str]]:
    """Yield mails and subjects: from JSON lines, or from the files of the authors' repository."""
    for _, content in material.matching(rf"(?:.*/)?{part}\.jsonl(?:\.gz)?"):
        for line in content.decode("utf-8").splitlines():
            fields = json.loads(line)
            yield fields["source"], fields["target"]
    for _, content in material.matching(rf"(?:.*/)?{part}/[^/]*\.subject"):
        mail, _, rest = content.decode("utf-8", "replace").replace("\r\n", "\n").partition(SUBJECT)
        yield mail, rest.partition("\n@")[0]
