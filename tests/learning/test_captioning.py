"""Captioners learn: shapes beat the best guess without sight, and attention finds the place that matters."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from saccade.data.batches import ShuffledBatches
from saccade.data.pictures import shapes
from saccade.data.pictures.captions import CaptionBatch
from saccade.data.text.tokenizer import START
from saccade.layers.clip_encoder import ClipEncoder
from saccade.layers.image_encoder import FeatureEncoder
from saccade.models.captioner import Captioner
from saccade.models.seq2seq import RecurrentSizes
from saccade.runs.config import check_config
from saccade.tasks.caption import task
from saccade.tasks.caption.loss import Weights, caption_loss
from saccade.training.loop import Trainer
from saccade.training.options import TrainingOptions

WORDS, PLACES, COUNT, FRAMES = 5, 9, 2000, 6


def blind(sentences: list[str]) -> float:
    """Nats a word of whoever knows how sentences are made but sees nothing: all combinations are as likely."""
    colours, chances = len(shapes.COLOURS), [len(shapes.SHAPES), len(shapes.SIZES)]
    nats = math.log(math.comb(colours, 2) * len(shapes.RELATIONS)) + 2 * sum(math.log(chance) for chance in chances)
    return nats / float(np.mean([len(sentence.split()) + 1 for sentence in sentences]))


def test_it_learns_to_tell_shapes(tmp_path: Path) -> None:
    """A run as the recipe's, in small: below 0.65 nats a word, where no blind guess is below 0.72."""
    plain: dict[str, Any] = {
        "task": "caption",
        "device": "cpu",
        "data": {"side": 24, "train": 3000, "valid": 100},
        "model": {"width": 32, "embedding_width": 32, "dropout": 0.0, "start": "zeros", "forgetting": 0.5},
        "training": {"tokens_per_batch": 192},
    }
    config = check_config(plain, "test")
    job = task.prepare(config, tmp_path, Console(quiet=True))
    options = TrainingOptions(
        max_steps=300, learning_rate=0.006, warmup_steps=40, schedule="constant", validate_every=300
    )
    Trainer(job.network, job.plan, job.loss, options, tmp_path).run(lambda: {"score": 0.0}, lambda *_: None)
    job.network.eval()
    found = job.validate()
    valid = shapes.paint_shapes(100, side=24, seed=1)
    touched = shapes.touched_cells(valid.mask_N2YX.reshape(-1, 24, 24), 6, 6).mean()
    assert blind(valid.sentences) > 0.70
    assert found["valid_loss"] < 0.65
    assert found["valid_noun_attention"] > 1.5 * 100 * touched  # nouns look at their things, not just anywhere


def maps(generator: np.random.Generator) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Feature maps in which every place shows a word and one is marked; that place, and its word."""
    word_NS = generator.integers(WORDS, size=(COUNT, PLACES))
    place_N = generator.integers(PLACES, size=COUNT)
    feature_NSC = np.zeros((COUNT, PLACES, WORDS + 1), np.float32)
    np.put_along_axis(feature_NSC, word_NS[..., None], 1.0, 2)
    feature_NSC[np.arange(COUNT), place_N, WORDS] = 1.0
    return torch.from_numpy(feature_NSC), place_N, word_NS[np.arange(COUNT), place_N]


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_the_place_that_matters_is_found(tmp_path: Path, attention: str) -> None:
    """The marked place's word is to be written: one in five by chance, and one in nine looks."""
    torch.manual_seed(1)
    feature_NSC, place_N, word_N = maps(np.random.default_rng(1))
    encoder = FeatureEncoder(24, rows=3, columns=3, channels=WORDS + 1)
    sizes = RecurrentSizes(24, 16, cell="lstm")
    network = Captioner(encoder, vocabulary=4 + WORDS, sizes=sizes, attention=attention, start="zeros")

    def load(rows: np.ndarray) -> CaptionBatch:
        read_BT = torch.full((len(rows), 1), START)
        write_BT = torch.from_numpy(4 + word_N[rows])[:, None]
        places_B, length_B = torch.full((len(rows),), PLACES), torch.ones(len(rows), dtype=torch.long)
        return CaptionBatch(feature_NSC[rows], places_B, read_BT, write_BT, length_B)

    plan = ShuffledBatches(COUNT - 200, size=64, seed=1, load=load)
    options = TrainingOptions(
        max_steps=400, learning_rate=0.01, warmup_steps=20, schedule="constant", validate_every=400
    )
    weights = Weights(reinforce=1.0, entropy=0.01)
    trainer = Trainer(network, plan, lambda batch: caption_loss(network, batch, weights), options, tmp_path)
    trainer.run(lambda: {"score": 0.0}, lambda *_: None)
    network.eval()
    held_out = load(np.arange(COUNT - 200, COUNT))
    with torch.no_grad():
        vectors, glance = network(held_out.source, held_out.places_B, held_out.read_BT)
    right = (network.logits(vectors)[:, 0].argmax(-1) == held_out.write_BT[:, 0]).float().mean()
    on_place = glance.weight_BTS[torch.arange(200), 0, torch.from_numpy(place_N[-200:])].mean()
    assert right > 0.95
    assert on_place > 0.8


def flashes(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clips of dim noise in which one cell flashes in one frame; that frame, and the colour of the flash."""
    frame_NFCYX = generator.integers(0, 60, (COUNT, FRAMES, 3, 8, 8)).astype(np.uint8)
    moment_N, colour_N = generator.integers(FRAMES, size=COUNT), generator.integers(3, size=COUNT)
    row_N, column_N = 4 * generator.integers(2, size=(2, COUNT))
    for row in range(COUNT):
        y, x = slice(row_N[row], row_N[row] + 4), slice(column_N[row], column_N[row] + 4)
        frame_NFCYX[row, moment_N[row], colour_N[row], y, x] = 255
    return frame_NFCYX, moment_N, colour_N


def test_the_moment_that_matters_is_found(tmp_path: Path) -> None:
    """The colour of a flash is to be written: one in three by chance, and half of the looks are at or beside it."""
    torch.manual_seed(1)
    frame_NFCYX, moment_N, colour_N = flashes(np.random.default_rng(1))
    encoder = ClipEncoder(16, frames=FRAMES, rows=8, columns=8)
    network = Captioner(encoder, vocabulary=7, sizes=RecurrentSizes(16, 8, cell="lstm"), start="zeros")
    cells = math.prod(encoder.shape)

    def load(rows: np.ndarray) -> CaptionBatch:
        read_BT = torch.full((len(rows), 1), START)
        write_BT = torch.from_numpy(4 + colour_N[rows])[:, None]
        places_B, length_B = torch.full((len(rows),), FRAMES * cells), torch.ones(len(rows), dtype=torch.long)
        return CaptionBatch(torch.from_numpy(frame_NFCYX[rows]), places_B, read_BT, write_BT, length_B)

    plan = ShuffledBatches(COUNT - 200, size=32, seed=1, load=load)
    options = TrainingOptions(
        max_steps=250, learning_rate=0.01, warmup_steps=20, schedule="constant", validate_every=250
    )
    trainer = Trainer(network, plan, lambda batch: caption_loss(network, batch, Weights()), options, tmp_path)
    trainer.run(lambda: {"score": 0.0}, lambda *_: None)
    network.eval()
    held_out = load(np.arange(COUNT - 200, COUNT))
    with torch.no_grad():
        vectors, glance = network(held_out.source, held_out.places_B, held_out.read_BT)
    right = (network.logits(vectors)[:, 0].argmax(-1) == held_out.write_BT[:, 0]).float().mean()
    weight_NF = glance.weight_BTS[:, 0].unflatten(1, (FRAMES, cells)).sum(-1)
    is_near_NF = torch.arange(FRAMES) - torch.from_numpy(moment_N[-200:])[:, None]
    assert right > 0.95
    assert float((weight_NF * (is_near_NF.abs() <= 1)).sum(1).mean()) > 0.8
