"""Training: the loss is the textbook's, and a killed run ends with bitwise the same weights."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from saccade.data.batches import BatchPlan
from saccade.data.corpus import Pair
from saccade.data.mistakes import Mistake
from saccade.data.store import prepare
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.training import checkpoints, losses
from saccade.training.loop import NonFiniteLoss, Options, Trainer
from saccade.training.schedules import SCHEDULES


@pytest.mark.parametrize("chunk", [1, 40, 1 << 21])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_and_its_gradients_are_torchs(chunk: int, smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK_LOGITS", chunk)
    vectors, matrix = (torch.randn(n, 5, dtype=torch.float64, requires_grad=True) for n in (7, 11))
    target = torch.randint(0, 11, (7,))
    ours, likelihood = losses.smoothed_cross_entropy(vectors, matrix, target, smoothing=smoothing)
    logits = vectors @ matrix.mT
    theirs = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(likelihood, F.cross_entropy(logits, target, reduction="sum"))
    for one, other in zip(
        torch.autograd.grad(3 * ours, (vectors, matrix)),
        torch.autograd.grad(3 * theirs, (vectors, matrix)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_schedules() -> None:
    root, cosine, constant = (SCHEDULES[name](100, 1000) for name in ("inverse_square_root", "cosine", "constant"))
    assert [schedule(50) for schedule in (root, cosine, constant)] == [0.5, 0.5, 0.5]
    assert [schedule(100) for schedule in (root, cosine, constant)] == [1.0, 1.0, 1.0]
    assert root(400) == 0.5
    assert cosine(1000) == pytest.approx(0)
    assert constant(1000) == 1


def build(folder: Path, max_steps: int, **options: float) -> Trainer:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    rows = [" ".join(map(str, random.integers(4, 19, random.integers(2, 9)))) for _ in range(60)]
    file = folder / "rows"
    file.write_text("\n".join(rows), encoding="utf-8")

    def ids(text: str) -> list[int]:
        return [int(word) for word in text.split()]

    pairs = [Pair(row, row) for row in rows]
    store = prepare(folder / "data", lambda: pairs, [file], encode=(ids, ids), identity={}, max_length=50)
    torch.manual_seed(5)
    model = Transformer(
        source_vocabulary=19,
        target_vocabulary=19,
        sizes=BlockSizes(16, 2, 32, dropouts=Dropouts(0.1, 0.1, 0.1)),
        num_encoder_layers=1,
        num_decoder_layers=1,
        share_embeddings=True,
    )
    given = {"learning_rate": 1e-2, "warmup_steps": 5, "validate_every": 7, "save_every": 3, **options}
    plan = BatchPlan(store, tokens_per_batch=100, seed=1)
    return Trainer(model, plan, Options(max_steps=max_steps, **given), folder)  # type: ignore[arg-type]


class Killed(BaseException):
    """As sudden as kill -9: nothing is saved on the way out."""


def run(trainer: Trainer, kill_at: int | None = None) -> None:
    def report(progress: checkpoints.Progress, measured: dict[str, float]) -> None:
        assert math.isfinite(measured["loss"])
        if progress.step == kill_at:
            raise Killed

    trainer.run(lambda: {"score": float(trainer.progress.step)}, report)


def test_a_killed_and_resumed_run_is_bitwise_the_same(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole", 25)
    run(whole)
    for kill_at in (2, 8, 9, 16, 23):
        with pytest.raises(Killed):
            run(build(tmp_path / "killed", 25), kill_at)
    resumed = build(tmp_path / "killed", 25)
    assert resumed.progress.step == 21
    run(resumed)
    assert resumed.progress == whole.progress
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert build(tmp_path / "killed", 25).is_finished


def test_a_truncated_checkpoint_costs_no_earlier_one(tmp_path: Path) -> None:
    run(build(tmp_path, 9))
    *_, newest = checkpoints.steps(tmp_path / "checkpoints")
    newest.write_bytes(newest.read_bytes()[:1000])
    assert build(tmp_path, 9).progress.step == 6


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    model = build(tmp_path, 1).model
    checkpoints.save_weights(tmp_path / "model.safetensors", model)
    del model.encoder[0]  # type: ignore[operator, union-attr]
    with pytest.raises(Mistake, match=r"checkpoint: it is of another model; only one of them has encoder\.0"):
        checkpoints.load_weights(tmp_path / "model.safetensors", model)


def test_interrupting_saves(tmp_path: Path) -> None:
    trainer = build(tmp_path, 9)

    def interrupt(progress: checkpoints.Progress, _: object) -> None:
        if progress.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.run(lambda: {"score": 0.0}, interrupt)
    assert build(tmp_path, 9).progress.step == 4


def test_a_loss_that_stays_infinite_ends_the_run_with_a_good_checkpoint(tmp_path: Path) -> None:
    trainer = build(tmp_path, 50)

    def spoil(progress: checkpoints.Progress, _: object) -> None:
        if progress.step == 7:
            with torch.no_grad():
                trainer.model.get_parameter("decoder_norm.weight").fill_(math.nan)

    with pytest.raises(NonFiniteLoss, match="10 times in a row"):
        trainer.run(lambda: {"score": 0.0}, spoil)
    resumed = build(tmp_path, 50)
    assert resumed.progress.step == 6
    assert all(parameter.isfinite().all() for parameter in resumed.model.parameters())


def test_the_best_weights_are_kept_and_patience_ends_the_run(tmp_path: Path) -> None:
    trainer = build(tmp_path, 100, validate_every=2, patience=3)
    scores = iter([1.0, 5.0, 4.0, 3.0, 2.0])
    trainer.run(lambda: {"score": next(scores)}, lambda *_: None)
    assert trainer.progress.step == 10
    assert (trainer.progress.best_score, trainer.progress.best_step) == (5.0, 4)
    assert (tmp_path / "model.safetensors").exists()
