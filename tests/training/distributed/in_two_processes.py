"""What two processes do together, for test_team.py: started twice, with the variables that torchrun sets."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, distributed, nn

from saccade.data.batches import PairBatch, collate_pairs
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.training.checkpoints import is_whole, list_checkpoints
from saccade.training.distributed import gradients, shards
from saccade.training.distributed.gradients import GradientSums
from saccade.training.distributed.team import Team, join_team
from saccade.training.loop import EagerBackward, Trainer
from saccade.training.losses import sequence_loss
from saccade.training.options import TrainingOptions
from saccade.training.signals import TrainingInterrupted


class Rows:
    """Five batches, so that one process of two has one more."""

    def epoch(self, number: int) -> Sequence[int]:
        del number
        return range(5)

    def load(self, row: int) -> PairBatch:
        random = np.random.default_rng(row)
        source, target = ([random.integers(4, 19, 3 + row).astype(np.int32) for _ in range(4)] for _ in range(2))
        return collate_pairs(source, target)


def network() -> Transformer:
    torch.manual_seed(5)
    return Transformer(
        source=19,
        target_vocabulary=19,
        sizes=BlockSizes(16, 2, 32, dropouts=Dropouts(0.0, 0.0, 0.0)),
        num_encoder_layers=1,
        num_decoder_layers=2,
        share_embeddings=True,
    )


def loss(model: nn.Module, row: int) -> Tensor:
    return sequence_loss(model, Rows().load(row))[0]


def sums_go_out_during_the_backward_pass(team: Team) -> None:
    gradients.BUCKET = 700
    for rows_of in ([0, 1], [0]):  # one batch each; the second process has none
        model, alone = network(), network()
        sums = GradientSums(model, team)
        if team.rank < len(rows_of):
            sums.expect(last=False)
            loss(model, 2 + team.rank).backward()
            assert not sums._sent
            sums.expect(last=True)
            loss(model, rows_of[team.rank]).backward()
            assert len(sums._sent) == len(sums.buckets) > 3
        sums.finish()
        for rank, row in enumerate(rows_of):
            (loss(alone, 2 + rank) + loss(alone, row)).backward()
        for own, other in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(own.grad, other.grad, rtol=1e-4, atol=1e-5)


def trainer(folder: Path, team: Team) -> Trainer:
    model = network()
    shards.shard(model, team, team.device)
    assert all(type(weight).__name__ == "DTensor" for weight in model.parameters())
    options = TrainingOptions(
        max_steps=20, learning_rate=1e-2, warmup_steps=2, accumulate=2, validate_every=3, save_every=50, ema=0.5
    )
    return Trainer(model, Rows(), functools.partial(sequence_loss, model), options, folder, team)


def an_infinite_loss_changes_no_shard(team: Team, folder: Path) -> None:
    made = trainer(folder, team)
    before = [weight.detach().clone() for weight in made.model.parameters()]
    backward = cast(EagerBackward, made.backward)
    plain, backward.loss = backward.loss, lambda batch: (torch.inf * sequence_loss(made.model, batch)[0],) * 2
    assert not made.step([Rows().load(team.rank)]).figures[1].isfinite()
    for weight, was in zip(made.model.parameters(), before, strict=True):
        assert torch.equal(shards.local_shard(weight), shards.local_shard(was))
    backward.loss = plain
    assert made.step([Rows().load(team.rank)]).figures[1].isfinite()
    assert any(
        not torch.equal(shards.local_shard(weight), shards.local_shard(was))
        for weight, was in zip(made.model.parameters(), before, strict=True)
    )


def signals_in_a_validation_stop_all_and_save(team: Team, folder: Path) -> None:
    processes = [0] * team.size
    distributed.all_gather_object(processes, os.getpid())
    made = trainer(folder, team)

    def validate() -> dict[str, float]:
        assert team.is_first
        assert sequence_loss(made.model, Rows().load(0))[0].isfinite()  # computed alone: the weights are whole
        for process in reversed(processes):
            os.kill(process, signal.SIGTERM)
        raise AssertionError("the signal came too late")

    try:
        made.run(validate, lambda *_: None)
    except TrainingInterrupted:
        again = trainer(folder, team)
    assert (again.progress.step, again.progress.validated) == (3, 0)
    for weight, was in zip(again.model.parameters(), made.model.parameters(), strict=True):
        assert torch.equal(shards.local_shard(weight), shards.local_shard(was))
    _find_the_same_alone(folder, made)


def _find_the_same_alone(folder: Path, made: Trainer) -> None:
    """Each process wrote its part, and a model that isn't sharded finds all of them."""
    (path,) = list_checkpoints(folder / "checkpoints")
    parts = sorted(part.stat().st_size for part in path.glob("*.safetensors"))
    assert path.suffix == ".parts"
    assert len(parts) == 2
    assert parts[1] < 1.3 * parts[0]
    alone = network()
    options = TrainingOptions(max_steps=20, learning_rate=1e-2, warmup_steps=2, accumulate=2, ema=0.5)
    whole = Trainer(alone, Rows(), functools.partial(sequence_loss, alone), options, folder)
    assert whole.progress == made.progress
    for weight, was in zip(alone.parameters(), made.model.parameters(), strict=True):
        assert torch.equal(weight, shards.join_shards(was))
        slots, others = whole.optimizer.state[weight], made.optimizer.state[was]
        assert torch.equal(slots["exp_avg_sq"], shards.join_shards(others["exp_avg_sq"]))
    for mean, part in zip(whole.average.weights.values(), made.average.weights.values(), strict=True):
        assert torch.equal(mean, shards.join_shards(part))
    distributed.barrier()
    if made.team.is_first:
        first = min(path.glob("*.safetensors"))
        first.write_bytes(first.read_bytes()[:-1] + b"?")
        assert not is_whole(path)
    distributed.barrier()


if __name__ == "__main__":
    with join_team() as two:
        sums_go_out_during_the_backward_pass(two)
        an_infinite_loss_changes_no_shard(two, Path(sys.argv[1]))
        signals_in_a_validation_stop_all_and_save(two, Path(sys.argv[1]))
