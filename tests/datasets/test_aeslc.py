"""E-mails of AESLC: from JSON lines, and from the files of the authors' repository."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from saccade.datasets.aeslc import write_aeslc
from saccade.datasets.material import Material
from saccade.errors import UserError

MAIL = "Hi Ann,\n\nI don't have the Q3-report (yet)."
WANTED = {"mail": "hi ann , i don't have the q3-report ( yet ) .", "subject": "the q3-report"}


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()]


def test_both_forms_give_the_same(tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        folder = tmp_path / "theirs" / "enron_subject_line" / part
        folder.mkdir(parents=True)
        (folder / "a.subject").write_text(f"{MAIL}\n\n@subject\nThe Q3-report\n\n@ann0\nno report\n", "utf-8")
        (folder / "b.subject").write_text("Only a mail\n\n@subject\n \n", "utf-8")
        (tmp_path / "lines").mkdir(exist_ok=True)
        rows = [{"source": MAIL, "target": "The Q3-report"}, {"source": "Only a mail", "target": " "}]
        packed = gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode("utf-8"))
        (tmp_path / "lines" / f"{part}.jsonl.gz").write_bytes(packed)
    for form in ("theirs", "lines"):
        write_aeslc(Material(tmp_path / form), tmp_path / "out" / form)
        for name in ("train", "valid", "test"):
            assert read(tmp_path / "out" / form / f"{name}.jsonl.gz") == [WANTED]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match=r"there is no train\.jsonl and no train/\*\.subject in it"):
        write_aeslc(Material(tmp_path / "nothing"), tmp_path / "out")
