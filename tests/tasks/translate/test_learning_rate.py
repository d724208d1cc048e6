"""The learning rate that a text-to-text run takes by itself."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from saccade.runs import config as config_file
from saccade.runs import train
from saccade.training.schedules import transformer_rate

TINY = {"size": "tiny", "width": 16, "num_heads": 2, "hidden_width": 8, "num_layers": 1}
RNN = {"kind": "rnn", "size": "tiny", "width": 8, "embedding_width": 8}


def test_it_is_that_of_vaswani_by_hand() -> None:
    assert transformer_rate(512, 4000) == 0.0007  # 1 / sqrt(2,048,000) = 0.000699
    assert transformer_rate(256, 1000) == 0.002
    assert transformer_rate(128, 80) == transformer_rate(128, 0) == 0.003  # at most


def trained(folder: Path, model: dict[str, Any], **training: Any) -> tuple[float, str]:
    """Train for some steps; return the rate in the run's config, and what was said."""
    rows = [f"{a} {b}\t{b} {a}\n" for a in "abcde" for b in "abcde"]
    (folder / "pairs.tsv").write_text("".join(rows), encoding="utf-8")
    files = {"source": f"{folder}/pairs.tsv"}
    content = {
        "data": {"train": files, "valid": files},
        "tokenizer": {"kind": "words"},
        "model": model,
        "training": {"validate_every": 2, **training},
    }
    text = io.StringIO()
    train.train(config_file.check_config(content, "test"), folder / "run", Console(file=text, width=200))
    settled: float = config_file.load_config(folder / "run" / "config.yaml").training.learning_rate
    return settled, text.getvalue()


@pytest.mark.parametrize(
    ("model", "training", "rate", "said"),
    [
        (TINY, {"max_steps": 2, "warmup_steps": 40_000}, 0.0013, "0.0013 (for width 16 and 40,000 steps of warm-up)"),
        ({**TINY, "norm": "post"}, {"max_steps": 2}, 0.001, "learning rate: 0.001 (the usual one)"),
        (RNN, {"max_steps": 2, "warmup_steps": 80_000}, 0.0013, "0.0013 (for width 8 and 80,000 steps of warm-up)"),
        (TINY, {"max_steps": 2, "learning_rate": 0.5}, 0.5, ""),
        ({**TINY, "norm": "post"}, {"max_steps": 2, "lora": 2}, 0.003, "0.003 (the usual one; three times it, as only"),
    ],
)
def test_it_suits_the_model_and_is_said(
    model: dict[str, Any], training: dict[str, Any], rate: float, said: str, tmp_path: Path
) -> None:
    settled, text = trained(tmp_path, model, **training)
    assert settled == rate
    assert said in text
    assert ("learning rate" in text) == bool(said)
