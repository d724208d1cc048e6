"""Sums and shards on an accelerator, in a group of one: what they compute is what a plain model computes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed

from saccade.data.batches import PairBatch, collate_pairs
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.training.distributed import gradients, shards
from saccade.training.distributed.gradients import GradientSums
from saccade.training.distributed.team import Team
from saccade.training.loop import Trainer
from saccade.training.losses import sequence_loss
from saccade.training.options import TrainingOptions

CUDA = torch.device("cuda", 0)
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
    pytest.mark.usefixtures("group"),
]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    torch.cuda.set_device(CUDA)
    where = f"file://{tmp_path / 'group'}"
    distributed.init_process_group("cpu:gloo,cuda:nccl", init_method=where, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


class Rows:
    """Batches by chance."""

    def epoch(self, number: int) -> range:
        return range(10 * number, 10 * number + 10)

    def load(self, row: int) -> PairBatch:
        random = np.random.default_rng(row)
        source, target = ([random.integers(4, 19, 3 + row % 5).astype(np.int32) for _ in range(4)] for _ in range(2))
        return collate_pairs(source, target)


def network() -> Transformer:
    torch.manual_seed(5)
    return Transformer(
        source=19,
        target_vocabulary=19,
        sizes=BlockSizes(32, 2, 64, dropouts=Dropouts(0.0, 0.0, 0.0)),
        num_encoder_layers=1,
        num_decoder_layers=2,
        share_embeddings=True,
    ).to(CUDA)


def trained(folder: Path, dtype: torch.dtype, *, sharded: bool) -> tuple[list[float], dict[str, Tensor]]:
    model = network()
    if sharded:
        shards.shard(model, Team(0, 1, CUDA), CUDA)
    options = TrainingOptions(
        max_steps=12,
        learning_rate=1e-2,
        warmup_steps=2,
        validate_every=4,
        save_every=5,
        ema=0.5,
        average_last=2,
        device=CUDA,
        dtype=dtype,
    )
    found: list[float] = []

    def report(_: Any, measured: dict[str, Any]) -> None:
        found.append(measured["loss" if "loss" in measured else "score"])

    @torch.no_grad()
    def validate() -> dict[str, float]:
        return {"score": -float(sequence_loss(model, Rows().load(99).to(CUDA))[1])}

    loss = functools.partial(sequence_loss, model)
    Trainer(model, Rows(), loss, options, folder).run(validate, report)
    again = Trainer(model, Rows(), loss, options, folder)
    assert again.progress.step == 12
    return found, {name: shards.join_shards(weight).detach() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sharded_model_trains_as_a_plain_one(dtype: torch.dtype, tmp_path: Path) -> None:
    plain, weights = trained(tmp_path / "plain", dtype, sharded=False)
    sharded, others = trained(tmp_path / "sharded", dtype, sharded=True)
    assert sharded == pytest.approx(plain, rel=1e-4 if dtype == torch.float32 else 2e-2)
    if dtype == torch.float32:
        for name in _learnt(weights):
            torch.testing.assert_close(others[name], weights[name], rtol=1e-4, atol=1e-4)
        return
    # Adam moves a weight by its rate even where rounding alone decides its gradient's sign: single weights differ, but
    # all together must be as near to those of float32
    _, exact = trained(tmp_path / "exact", torch.float32, sharded=False)
    assert _distance(others, exact) <= 1.5 * _distance(weights, exact)


def _learnt(weights: dict[str, Tensor]) -> list[str]:
    """A key's bias has no gradient but rounding's: the softmax cancels it."""
    return [name for name in weights if not name.endswith("key.bias")]


def _distance(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    return float(torch.stack([(first[name] - second[name]).norm() for name in _learnt(first)]).norm())


def test_sums_from_hooks_are_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "BUCKET", 3000)
    model, plain = network(), network()
    sums = GradientSums(model, Team(0, 2, CUDA))  # in a group of one a sum is the thing itself
    batch = Rows().load(3).to(CUDA)
    sums.expect(last=True)
    sequence_loss(model, batch)[0].backward()
    assert len(sums._sent) == len(sums.buckets) > 3
    sums.finish()
    sequence_loss(plain, batch)[0].backward()
    for own, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)
