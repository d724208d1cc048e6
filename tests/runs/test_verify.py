"""Killing a run on purpose: the proof runs, and a difference is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from saccade.errors import UserError
from saccade.runs import verify


def config(folder: Path) -> Path:
    rows = "".join(f"{'a' * (i % 5 + 1)} {i % 7}\t{i % 7} {'b' * (i % 5 + 1)}\n" for i in range(200))
    (folder / "rows.tsv").write_text(rows, encoding="utf-8")
    files = f"{{source: {folder}/rows.tsv}}"
    text = f"""
data: {{train: {files}, valid: {files}}}
tokenizer: {{kind: characters, vocabulary_size: 30}}
model: {{size: tiny, width: 16, num_heads: 2, hidden_width: 16, num_layers: 1}}
training: {{tokens_per_batch: 200}}
"""
    (folder / "run.yaml").write_text(text, encoding="utf-8")
    return folder / "run.yaml"


@pytest.mark.usefixtures("quick_start")
def test_a_killed_run_is_verified(tmp_path: Path) -> None:
    arguments = ["training.tokens_per_batch=largest", "training.ema=0.9"]
    verdict = verify.verify(config(tmp_path), arguments, kills=2, steps=40, console=Console(quiet=True))
    assert verdict.is_same
    assert (verdict.num_steps, verdict.num_kills) == (40, 2)


@pytest.mark.usefixtures("quick_start")
def test_a_killed_run_of_another_task_is_verified_too(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("a B-X\nb O\n\n" * 3, encoding="utf-8")
    text = f"""
task: tag
data: {{train: {tmp_path}/rows.txt, valid: {tmp_path}/rows.txt}}
model: {{width: 4, word_width: 3, character_width: 4}}
"""
    (tmp_path / "tags.yaml").write_text(text, encoding="utf-8")
    assert verify.verify(tmp_path / "tags.yaml", [], kills=1, steps=16, console=Console(quiet=True)).is_same


def test_different_weights_are_seen(tmp_path: Path) -> None:
    for name, content in (("whole", b"1"), ("killed", b"2")):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "checkpoints" / "step-000000001.safetensors").write_bytes(b"0")
        (tmp_path / name / "model.safetensors").write_bytes(content)
    assert not verify._are_same(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.usefixtures("quick_start")
def test_a_mistake_in_the_config_is_said(tmp_path: Path) -> None:
    path = config(tmp_path)
    (tmp_path / "rows.tsv").unlink()
    with pytest.raises(UserError, match="there is no file at"):
        verify.verify(path, [], kills=1, steps=6, console=Console(quiet=True))
