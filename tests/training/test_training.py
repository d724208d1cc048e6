"""Training: the loss is the textbook's, and a killed run ends with bitwise the same weights."""

from __future__ import annotations

import errno
import functools
import math
import os
import re
import signal
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from saccade.data.batches import PairBatch, bucket_pairs
from saccade.data.store import SideLimit, encode_sides, prepare_store
from saccade.data.text.corpus import Pair
from saccade.errors import NonFiniteLoss, UserError
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.training import checkpoints, losses, precision
from saccade.training.averages import MovingAverage
from saccade.training.batch_size import find_batch_size
from saccade.training.loop import Trainer
from saccade.training.losses import disagreement, sequence_loss
from saccade.training.options import TrainingOptions
from saccade.training.schedules import SCHEDULES
from saccade.training.signals import TrainingInterrupted


@pytest.mark.parametrize("chunk", [1, 40, 1 << 21])
def test_two_answers_disagree_by_the_mean_of_both_divergences(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK_LOGITS", chunk)
    vectors, matrix = torch.randn(2, 7, 5, dtype=torch.float64), torch.randn(11, 5, dtype=torch.float64)
    vectors.requires_grad_(), matrix.requires_grad_()
    p, q = torch.log_softmax(vectors @ matrix.mT, -1)
    both = F.kl_div(q, p, reduction="sum", log_target=True) + F.kl_div(p, q, reduction="sum", log_target=True)
    ours = disagreement(vectors, matrix)
    torch.testing.assert_close(ours, both / 2)
    for one, other in zip(*(torch.autograd.grad(x, (vectors, matrix)) for x in (ours, both / 2)), strict=True):
        torch.testing.assert_close(one, other)


def test_consistency_reads_twice_and_adds_the_disagreement(tmp_path: Path) -> None:
    trainer = build(tmp_path, 1)
    batch = trainer.plan.load(trainer.plan.epoch(0)[0])
    trainer.model.eval()  # without dropout both answers are one
    for one, other in zip(*(sequence_loss(trainer.model, batch, consistency=c) for c in (0.0, 5.0)), strict=True):
        torch.testing.assert_close(one, other)
    trainer.model.train()
    torch.manual_seed(3)
    without = sequence_loss(trainer.model, batch.repeat_rows())[0] / 2
    torch.manual_seed(3)
    assert sequence_loss(trainer.model, batch, consistency=5.0)[0] > without + 1.0


@pytest.mark.parametrize("consistency", [0.0, 2.0])
def test_an_output_bias_is_in_the_loss_and_learns(consistency: float) -> None:
    sizes = BlockSizes(8, 2, 12, dropouts=Dropouts(0.0))
    model = Transformer(
        source=11, target_vocabulary=13, sizes=sizes, num_encoder_layers=1, num_decoder_layers=1, output_bias=True
    )
    assert model.output_bias is not None
    torch.nn.init.normal_(model.output_bias)
    id_B5 = torch.randint(4, 11, (3, 5))
    batch = PairBatch(id_B5, torch.full((3,), 5), id_B5, id_B5 + 2, torch.full((3,), 5))
    loss, likelihood = sequence_loss(model, batch, smoothing=0.1, consistency=consistency)
    logits_BTV = model.logits(model(batch.source_BS, batch.source_length_B, batch.read_BT))
    plain = F.cross_entropy(logits_BTV.flatten(0, 1), batch.write_BT.flatten(), reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(
        likelihood, F.cross_entropy(logits_BTV.flatten(0, 1), batch.write_BT.flatten(), reduction="sum")
    )
    learned = [model.output_bias, model.output.weight, model.target.weight]
    for one, other in zip(*(torch.autograd.grad(x, learned) for x in (loss, plain)), strict=True):
        torch.testing.assert_close(one, other)


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
    store = prepare_store(
        folder / "data", lambda: pairs, [file], encode=encode_sides(ids, ids), identity={}, limits=(SideLimit(50),) * 2
    )
    torch.manual_seed(5)
    model = Transformer(
        source=19,
        target_vocabulary=19,
        sizes=BlockSizes(16, 2, 32, dropouts=Dropouts(0.1, 0.1, 0.1)),
        num_encoder_layers=1,
        num_decoder_layers=1,
        share_embeddings=True,
    )
    given = {"learning_rate": 1e-2, "warmup_steps": 5, "validate_every": 7, "save_every": 3, **options}
    plan = bucket_pairs(store, tokens_per_batch=100, seed=1)
    loss = functools.partial(sequence_loss, model, smoothing=0.1)
    return Trainer(model, plan, loss, TrainingOptions(max_steps=max_steps, **given), folder)  # type: ignore[arg-type]


class Killed(BaseException):
    """As sudden as kill -9: nothing is saved on the way out."""


def run(trainer: Trainer, kill_at: int | None = None) -> None:
    def report(progress: checkpoints.Progress, measured: dict[str, float]) -> None:
        assert math.isfinite(measured.get("loss", 0.0))
        if progress.step == kill_at:
            raise Killed

    trainer.run(lambda: {"score": float(trainer.progress.step)}, report)


def test_a_killed_and_resumed_run_is_bitwise_the_same(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole", 25)
    run(whole)
    for kill_at in (2, 7, 8, 9, 16, 23):
        with pytest.raises(Killed):
            run(build(tmp_path / "killed", 25), kill_at)
    resumed = build(tmp_path / "killed", 25)
    assert resumed.progress.step == 21
    run(resumed)
    assert resumed.progress == whole.progress
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert build(tmp_path / "killed", 25).is_finished


def test_averages_and_accumulation_resume_too(tmp_path: Path) -> None:
    options = {"ema": 0.9, "average_last": 2, "accumulate": 3, "validate_every": 5, "save_every": 2}
    whole = build(tmp_path / "whole", 13, **options)
    run(whole)
    for kill_at in (3, 8, 11):
        with pytest.raises(Killed):
            run(build(tmp_path / "killed", 13, **options), kill_at)
    resumed = build(tmp_path / "killed", 13, **options)
    run(resumed)
    assert resumed.progress == whole.progress
    assert resumed.progress.is_averaged
    for one, other in zip(whole.average.weights.values(), resumed.average.weights.values(), strict=True):
        assert torch.equal(one, other)
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert first == second


def test_accumulated_batches_give_the_gradient_of_one(tmp_path: Path) -> None:
    weights = []
    for name in ("one", "parts"):
        trainer = build(tmp_path / name, 1)
        trainer.model.eval()  # no dropout, which would differ
        rows = trainer.plan.epoch(0)[:2]
        trainer.step([trainer.plan.load(part) for part in (rows if name == "parts" else [np.concatenate(rows)])])
        weights.append([parameter.grad for parameter in trainer.model.parameters()])
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_moving_average_is_the_equation() -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
        average = MovingAverage(model, 0.5)
        model.weight.fill_(3.0)
        average.update(model, 0)  # early on the decay is (1 + step) / (10 + step)
        torch.testing.assert_close(average.weights["weight"], torch.full((1, 2), 0.1 * 1 + 0.9 * 3))
        average.update(model, 100)
    torch.testing.assert_close(average.weights["weight"], torch.full((1, 2), 0.5 * 2.8 + 0.5 * 3))
    with average.swap_into(model):
        assert model.weight[0, 0].item() == pytest.approx(2.9)
    assert model.weight[0, 0].item() == 3.0


def test_the_mean_of_the_last_validated_weights_is_kept_only_if_it_is_better(tmp_path: Path) -> None:
    for name, last_score in (("better", 9.0), ("worse", 0.0)):
        trainer = build(tmp_path / name, 6, validate_every=2, average_last=2)
        scores = iter([1.0, 2.0, 3.0, last_score])
        trainer.run(lambda: {"score": next(scores)}, lambda *_: None)  # noqa: B023
        stored = load_file(tmp_path / name / "model.safetensors")["encoder_norm.weight"]
        files = checkpoints.list_checkpoints(tmp_path / name / "validated")
        assert [path.stem for path in files] == ["step-000000004", "step-000000006"]
        parts = [load_file(path)["encoder_norm.weight"] for path in files]
        assert torch.equal(stored, torch.stack(parts).mean(0)) is (name == "better")
        assert torch.equal(trainer.model.get_parameter("encoder_norm.weight"), parts[-1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_between_two_steps_and_save(number: int, tmp_path: Path) -> None:
    trainer = build(tmp_path, 20)

    def send(progress: checkpoints.Progress, _: object) -> None:
        if progress.step == 4:
            os.kill(os.getpid(), number)

    with pytest.raises(TrainingInterrupted):
        trainer.run(lambda: {"score": 0.0}, send)
    assert build(tmp_path, 20).progress.step == 4


def test_a_signal_in_validation_stops_at_once_and_validates_again(tmp_path: Path) -> None:
    trainer = build(tmp_path, 20)

    def validate() -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal came too late")

    with pytest.raises(TrainingInterrupted):
        trainer.run(validate, lambda *_: None)
    resumed = build(tmp_path, 20)
    assert (resumed.progress.step, resumed.progress.validated) == (7, 0)
    run(resumed)
    assert resumed.progress.best_step == 20


def test_bfloat16_is_probed_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, wide = torch.device("cpu"), torch.nn.Linear(256, 512)
    monkeypatch.setattr(precision, "_multiplies_natively", lambda: True)
    for probe, expected in (
        ("import os; os.abort()", torch.float32),
        ("", torch.bfloat16),
    ):  # as an illegal instruction
        monkeypatch.setattr(precision, "PROBE", probe)
        precision._survives.cache_clear()
        assert precision.compute_dtype("auto", cpu, wide) == expected
    assert precision.compute_dtype("auto", cpu, torch.nn.Linear(255, 512)) == torch.float32
    assert precision.compute_dtype("float32", cpu, wide) == torch.float32
    monkeypatch.setattr(precision, "_multiplies_natively", lambda: False)
    assert precision.compute_dtype("auto", cpu, wide) == torch.float32
    precision._survives.cache_clear()


def test_the_batch_size_is_found_by_trying() -> None:
    tried: list[tuple[int, ...]] = []

    def step(batch: PairBatch) -> None:
        tried.append(tuple(batch.source_BS.shape))
        if batch.source_BS.numel() > 5000:
            raise torch.OutOfMemoryError

    assert find_batch_size(step, longest=100, device=torch.device("cpu")) == 4096
    assert tried[:2] == [(1, 100), (2, 100)]


def test_a_truncated_checkpoint_costs_no_earlier_one(tmp_path: Path) -> None:
    run(build(tmp_path, 9))
    *_, newest = checkpoints.list_checkpoints(tmp_path / "checkpoints")
    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.warns(UserWarning, match=r"step-000000009.safetensors is damaged; the run goes on from step-0+6"):
        assert build(tmp_path, 9).progress.step == 6
    assert (tmp_path / "checkpoints" / "damaged-step-000000009.safetensors").exists()
    (whole,) = checkpoints.list_checkpoints(tmp_path / "checkpoints")
    whole.write_bytes(b"")
    with pytest.raises(UserError, match="is damaged, and no other checkpoint is left"):
        build(tmp_path, 9)
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(UserError, match=r"model.safetensors is damaged"):
        checkpoints.load_weights(tmp_path / "model.safetensors", torch.nn.Linear(1, 1))


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    trainer = build(tmp_path, 9)
    run(trainer)
    random = Random(7)
    *_, newest = checkpoints.list_checkpoints(tmp_path / "checkpoints")
    for path in [newest] * 20 + [tmp_path / "model.safetensors"] * 20:
        whole = path.read_bytes()
        at = random.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << random.randrange(8)]) + whole[at + 1 :])
        with pytest.raises(UserError, match=rf"{path.name} is damaged"):
            checkpoints.read_weights(path)
        path.write_bytes(whole)
    damaged = bytearray(newest.read_bytes())
    damaged[-400:] = bytes(byte ^ 127 for byte in damaged[-400:])
    newest.write_bytes(damaged)
    with pytest.warns(UserWarning, match=r"step-000000009.safetensors is damaged; the run goes on from step-0+6"):
        assert build(tmp_path, 9).progress.step == 6


def test_weights_of_earlier_versions_are_loaded_without_a_checksum(tmp_path: Path) -> None:
    model, path = torch.nn.Linear(2, 3), tmp_path / "model.safetensors"
    save_file(checkpoints.unique_state(model), path)
    other = torch.nn.Linear(2, 3)
    checkpoints.load_weights(path, other)
    assert torch.equal(other.weight, model.weight)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    model = build(tmp_path, 1).model
    checkpoints.save_weights(tmp_path / "model.safetensors", model)
    del model.encoder[0]  # type: ignore[operator, union-attr]
    with pytest.raises(
        UserError, match=r"model.safetensors: these weights belong to another model .*; only one of them has encoder\.0"
    ):
        checkpoints.load_weights(tmp_path / "model.safetensors", model)


def test_interrupting_saves(tmp_path: Path) -> None:
    trainer = build(tmp_path, 9)

    def interrupt(progress: checkpoints.Progress, _: object) -> None:
        if progress.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.run(lambda: {"score": 0.0}, interrupt)
    assert build(tmp_path, 9).progress.step == 4


def test_a_full_disk_is_said_in_its_own_words() -> None:
    full = "Error while serializing: I/O error: No space left on device (os error 28)"
    for said, expected in ((full, f"[Errno {errno.ENOSPC}] No space left on device"), ("odd", "[Errno 5] odd")):
        with pytest.raises(OSError, match=re.escape(expected)), checkpoints.disk_errors():
            raise SafetensorError(said)


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


def test_a_score_that_is_no_number_is_never_the_best(tmp_path: Path) -> None:
    trainer = build(tmp_path, 6, validate_every=2)
    scores = iter([math.nan, 1.0, math.nan])
    trainer.run(lambda: {"score": next(scores)}, lambda *_: None)
    assert (trainer.progress.best_score, trainer.progress.best_step) == (1.0, 4)


def test_of_equal_scores_the_lower_loss_is_the_best(tmp_path: Path) -> None:
    trainer = build(tmp_path, 100, validate_every=2, patience=2)
    measured = [(0.0, 5.0), (0.0, 4.0), (0.0, 4.5), (0.0, 3.0), (-1.0, 1.0), (0.0, math.nan)]
    found = ({"score": score, "valid_loss": loss} for score, loss in measured)
    trainer.run(lambda: next(found), lambda *_: None)
    assert trainer.progress.step == 12  # a better loss of an equal score gives the run more patience
    assert (trainer.progress.best_score, trainer.progress.best_loss, trainer.progress.best_step) == (0.0, 3.0, 8)
    assert build(tmp_path, 100).progress.best_loss == 3.0


def test_the_best_weights_are_kept_and_patience_ends_the_run(tmp_path: Path) -> None:
    trainer = build(tmp_path, 100, validate_every=2, patience=3)
    scores = iter([1.0, 5.0, 4.0, 3.0, 2.0])
    trainer.run(lambda: {"score": next(scores)}, lambda *_: None)
    assert trainer.progress.step == 10
    assert (trainer.progress.best_score, trainer.progress.best_step) == (5.0, 4)
    assert (tmp_path / "model.safetensors").exists()
