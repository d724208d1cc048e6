"""Runs for tests, as training leaves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from saccade.runs import config as config_file
from saccade.tasks.translate import corpora
from saccade.tasks.translate import task as translate_config
from saccade.training import checkpoints

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
TRANSFORMER = {"width": 16, "num_heads": 2, "hidden_width": 32, "num_layers": 2}


def make_run(
    folder: Path, *overrides: str, words: list[str] = WORDS, model: Mapping[str, object] = TRANSFORMER
) -> Path:
    """A run as training leaves it, without the training."""
    text = folder.with_suffix(".txt")
    text.write_text(" ".join(words) + "\n", encoding="utf-8")
    sides = {"source": str(text), "target": str(text)}
    content = {
        "data": {"train": sides, "valid": sides},
        "tokenizer": {"kind": "words"},
        "model": dict(model),
    }
    folder.mkdir()
    (folder / "draft.yaml").write_text(json.dumps(content), encoding="utf-8")
    config = config_file.load(folder / "draft.yaml", overrides)
    config_file.save(config, folder / "config.yaml")
    network = translate_config.model(config, corpora.tokenizers(config, folder))
    torch.nn.init.normal_(network.get_parameter("target.weight"), std=0.5)
    checkpoints.save_weights(folder / "model.safetensors", network)
    return folder
