"""Text to text on an accelerator: it learns there, and what it wrote there it writes on the CPU too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rich.console import Console

from saccade.runs import config as config_file
from saccade.runs import train
from saccade.runs.load import load_run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

MODELS = {
    "transformer": {"size": "tiny", "width": 64, "num_heads": 2, "hidden_width": 64, "num_layers": 1, "dropout": 0.1},
    "bahdanau": {"kind": "rnn", "size": "tiny", "width": 64, "embedding_width": 64, "dropout": 0.1},
    "luong": {"kind": "rnn", "attention": "luong", "size": "tiny", "width": 64, "embedding_width": 64, "cell": "lstm"},
    "none": {"kind": "rnn", "attention": "none", "size": "tiny", "direction": "backward", "width": 64},
}


@pytest.mark.parametrize("name", MODELS)
def test_it_trains_and_predicts(name: str, tmp_path: Path) -> None:
    words = [f"w{index}" for index in range(12)]
    rows = [(words[i % 12], words[i * 5 % 12], words[i * 7 % 11]) for i in range(400)]
    (tmp_path / "rows.tsv").write_text("".join(f"{' '.join(r)}\t{' '.join(r[::-1])}\n" for r in rows), "utf-8")
    files = {"source": str(tmp_path / "rows.tsv")}
    training = {"max_steps": 120, "tokens_per_batch": 400, "learning_rate": 0.005, "warmup_steps": 20, "ema": 0.9}
    content = {
        "data": {"train": files, "valid": files},
        "tokenizer": {"kind": "words", "vocabulary_size": 20},
        "model": MODELS[name],
        "training": {**training, "validate_every": 60, "metric": "chrf"},
    }
    progress = train.train(config_file.check_config(content, "test"), tmp_path / "run", Console(quiet=True))
    assert progress.best_score is not None
    assert progress.best_score > 50
    model = load_run(tmp_path / "run")
    assert next(model.model.parameters()).device.type == "cuda"
    texts = [" ".join(row) for row in rows[:20]]
    there = [found.text for found in model.predict(texts, width=3)]
    model.model.cpu()
    assert [found.text for found in model.predict(texts, width=3)] == there
