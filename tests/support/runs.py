"""Runs for tests, as training leaves them; and the example task of CONTRIBUTING.md."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from saccade import manifest
from saccade.runs import config as config_file
from saccade.tasks import TASKS
from saccade.tasks.translate import task as translate_config
from saccade.tasks.translate.tokenizers import prepare_tokenizers
from saccade.training import checkpoints

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "rate.py"
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
    config = config_file.load_config(folder / "draft.yaml", overrides)
    manifest.begin(folder)
    config_file.save_config(config, folder / "config.yaml")
    network = translate_config.model(config, prepare_tokenizers(config, folder))
    (table,) = (own for name, own in network.named_parameters() if name.endswith("target.weight"))
    torch.nn.init.normal_(table, std=0.5)
    manifest.record(folder, *(path.name for path in folder.glob("tokenizer.*")))
    checkpoints.save_weights(folder / "model.safetensors", network)
    return folder


@contextmanager
def rate_task() -> Iterator[ModuleType]:
    """Inside the block there is a task `rate`: the module of the example."""
    spec = importlib.util.spec_from_file_location("rate_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rate_example", module)  # its annotations are looked up there
        spec.loader.exec_module(module)
        patch.setitem(TASKS, "rate", module.RATE)
        yield module


def rated(seed: int, count: int) -> str:
    """Lines whose number is the mean of what their words are worth."""
    worth = {"fine": 1.0, "great": 2.0, "dull": -1.0, "poor": -2.0, "film": 0.0, "plot": 0.0}
    random = np.random.default_rng(seed)
    texts = (random.choice(list(worth), 5) for _ in range(count))
    return "".join(f"{np.mean([worth[word] for word in text]):.3f} {' '.join(text)}\n" for text in texts)
