"""Where to look is learned: textures that only a look straight at them tells apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import nn

from saccade.runs import train
from saccade.tasks.glimpse import task
from saccade.tasks.glimpse.config import GlimpseConfig

SIDE = 6


def textures(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Rows, columns or a checkerboard of single pixels: at half the size, seen from elsewhere, all are one grey."""
    y, x = np.indices((SIDE, SIDE))
    kinds = np.stack([y % 2, x % 2, (x + y) % 2])
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    inverted = random.integers(0, 2, count)[:, None, None]
    return ((kinds[labels] ^ inverted) * 255).astype(np.uint8), labels


def test_looking_beats_looking_anywhere(tmp_path: Path) -> None:
    """Chance is 33%; the same network sent anywhere instead of where it wants stays far below its own policy."""
    for name, seed in (("train", 1), ("valid", 2)):
        pixels, labels = textures(512, seed)
        np.savez(tmp_path / f"{name}.npz", images=pixels, labels=labels)
    files = {name: {"images": str(tmp_path / f"{name}.npz")} for name in ("train", "valid")}
    config = GlimpseConfig.model_validate(
        {
            "task": "glimpse",
            "device": "cpu",
            "data": {**files, "canvas": 20},
            "model": {"patch": 6, "num_scales": 3, "num_glimpses": 2, "width": 64, "glimpse_width": 64, "core": "gru"}
            | {"first_location": "middle", "policy_reaches_core": True},
            "training": {"max_steps": 450, "batch_size": 128, "copies": 2, "learning_rate": 5e-3, "warmup_steps": 20}
            | {"schedule": "cosine", "reward": "probability", "first_std": 0.3, "std": 0.1, "std_steps": 300}
            | {"clip_norm": 5.0, "validate_every": 450, "precision": "float32"},
            "decoding": {"batch_size": 512},
        }
    )
    train.train(config, tmp_path / "run", Console(quiet=True))
    model = task.load(config, tmp_path / "run")
    images = model.images([tmp_path / "valid.npz"])
    canvas_NCYX, label_N = model.fixed(images), torch.tensor(images.label_N)
    own = model.scores(canvas_NCYX, label_N, samples=1).accuracy
    for parameter in model.network.location[-1].parameters():
        nn.init.zeros_(parameter)  # now every location is the noise itself
    anywhere_TBM2 = torch.rand(2, 512, 1, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    said_N = model.probabilities(canvas_NCYX, anywhere_TBM2)[0][-1].argmax(-1)
    anywhere = 100 * float((said_N == label_N).float().mean())
    assert own > 85
    assert anywhere < 70
