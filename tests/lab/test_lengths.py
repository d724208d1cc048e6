"""Several configs over several seeds: a score each, one picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from saccade.errors import UserError
from saccade.lab import lengths


def config(folder: Path, name: str, model: str, *, test: bool = True) -> Path:
    rows = "".join(f"{'a ' * (i % 9 + 1)}\t{'b ' * (i % 9 + 1)}\n" for i in range(180))
    (folder / "rows.tsv").write_text(rows, encoding="utf-8")
    files = f"{{source: {folder}/rows.tsv}}"
    held_out = f", test: {files}" if test else ""
    text = f"""
data: {{train: {files}, valid: {files}{held_out}}}
tokenizer: {{kind: words, vocabulary_size: 10}}
model: {model}
training: {{max_steps: 2, tokens_per_batch: 400}}
decoding: {{beam: 1}}
"""
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / f"{name}.yaml"


@pytest.mark.usefixtures("quick_start")
def test_every_config_and_seed_is_scored_and_drawn(tmp_path: Path) -> None:
    one = config(tmp_path, "attending", "{size: tiny, width: 16, num_heads: 2, hidden_width: 16, num_layers: 1}")
    other = config(tmp_path, "blind", "{kind: rnn, attention: none, size: tiny, width: 16, embedding_width: 16}")
    found = lengths.run([one, other], seeds=2, jobs=2, out=tmp_path / "out", console=Console(quiet=True))
    assert [(outcome.config, outcome.seed) for outcome in found] == [
        ("attending", 1),
        ("attending", 2),
        ("blind", 1),
        ("blind", 2),
    ]
    assert all(list(outcome.by_length) == ["0-5", "6-10"] for outcome in found)
    stored = json.loads((tmp_path / "out" / "lengths.json").read_text("utf-8"))
    assert [row["bleu"] for row in stored] == [outcome.bleu for outcome in found]
    assert (tmp_path / "out" / "lengths.png").read_bytes().startswith(b"\x89PNG")


def test_a_test_set_is_needed(tmp_path: Path) -> None:
    path = config(tmp_path, "run", "{size: tiny}", test=False)
    with pytest.raises(UserError, match=r"run.yaml: data.test is missing"):
        lengths.run([path], seeds=1, jobs=1, out=tmp_path, console=Console(quiet=True))
