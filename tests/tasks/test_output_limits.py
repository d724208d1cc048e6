"""Limits of outputs that a config leaves to the training pairs are settled once, said, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from saccade.cli import app
from saccade.runs.check import accept_edits
from saccade.runs.load import load_run

RUNNER = CliRunner()
CONFIG = """
data: {{train: {{source: {0}/pairs.tsv}}, valid: {{source: {0}/pairs.tsv}}}}
tokenizer: {{kind: words, shared: false}}
model: {{width: 8, num_heads: 2, hidden_width: 16, num_layers: 1}}
training: {{max_steps: 1, validate_every: 1, metric: loss}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Commands whose actions come up to 40 times: the lists of defaults would be cut."""
    rows = [
        f"do {word} {count}\t{' '.join([word.upper()] * count)}\n" for word in ("walk", "run") for count in range(1, 41)
    ]
    (tmp_path / "pairs.tsv").write_text("".join(rows), encoding="utf-8")
    (tmp_path / "run.yaml").write_text(CONFIG.format(tmp_path), encoding="utf-8")
    return tmp_path


def train(folder: Path, *overrides: str) -> list[str]:
    """Train one step or go on, and return the lines that are about limits."""
    done = RUNNER.invoke(app, ["train", str(folder / "run.yaml"), *overrides, "--run", str(folder / "run")])
    assert done.exit_code == 0, done.output
    return [line for line in done.output.splitlines() if line.startswith(("longest output: ", "loops: "))]


def kept(folder: Path) -> tuple[float, int, int]:
    """Return factor, extra and rounds as the run's config has them; its predictor takes them."""
    section = yaml.safe_load((folder / "run" / "config.yaml").read_text("utf-8"))["decoding"]
    found = (section["max_length_factor"], section["max_length_extra"], section["max_rounds"])
    options = load_run(folder / "run").options
    assert found == (options.max_length_factor, options.max_length_extra, options.max_rounds)
    return found


def test_limits_come_from_the_pairs_and_are_said_and_kept(folder: Path) -> None:
    lines = train(folder)
    factor, extra, rounds = kept(folder)
    assert 61.5 <= factor * 4 + extra < 63  # each source has four tokens with </s>; the longest target 41
    assert rounds == 60
    assert lines == [
        f"longest output: {factor:g} tokens for each token of the source, and {extra} more (max_length_factor, "
        "max_length_extra; 1.5 times what training pairs have)",
        "loops: an output goes round the same tokens at most 60 times (max_rounds; training targets go up to 40 times)",
    ]
    assert train(folder, "training.max_steps=2") == []
    assert kept(folder) == (factor, extra, rounds)


def test_limits_that_are_given_are_honoured(folder: Path) -> None:
    assert train(folder, "decoding.max_length_factor=2.0", "decoding.max_rounds=0") == []
    assert kept(folder) == (2.0, 10, 0)
    assert train(folder, "training.max_steps=2") == []
    assert kept(folder) == (2.0, 10, 0)


def test_an_extra_alone_may_be_given(folder: Path) -> None:
    assert "and 30 more" in train(folder, "decoding.max_length_extra=30")[0]
    factor, extra, _ = kept(folder)
    assert 61.5 <= factor * 4 + extra < 63


def test_a_run_of_old_keeps_its_numbers(folder: Path) -> None:
    train(folder, "decoding.max_length_factor=2.0", "decoding.max_rounds=8")
    path = folder / "run" / "config.yaml"
    content = yaml.safe_load(path.read_text("utf-8"))
    del content["decoding"]["max_length_extra"]  # it was ten, and no setting
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    accept_edits(folder / "run")
    assert load_run(folder / "run").options.max_length_extra == 10
    assert train(folder, "training.max_steps=2") == []
    assert kept(folder) == (2.0, 10, 8)


def test_limits_of_a_start_that_learned_nothing_are_not_kept_for_other_data(folder: Path) -> None:
    train(folder)
    first = kept(folder)
    for path in [folder / "run" / "model.safetensors", *(folder / "run" / "checkpoints").iterdir()]:
        path.unlink()
    (folder / "other.tsv").write_text("a b\tc d\ne f\tg h\n", encoding="utf-8")
    assert "training targets don't" in train(folder, f"data.train.source={folder}/other.tsv")[1]
    assert kept(folder) != first
