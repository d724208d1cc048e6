"""Adam's kernel on a CUDA device: torch's step, weights in half precision beside; a captured run is the plain one."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

from saccade.bench.training.flops import ModelSizes
from saccade.bench.training.trainers import TrainJob, config_of, word_tokenizer
from saccade.ops.linear import Linear
from saccade.tasks import devices
from saccade.tasks.translate import batches, task
from saccade.training.adam import Adam
from saccade.training.captured import CapturedBackward
from saccade.training.checkpoints import Progress
from saccade.training.loop import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CUDA = torch.device("cuda")


@pytest.mark.parametrize("decoupled", [True, False])
def test_it_is_torchs_step(decoupled: bool) -> None:
    models = [nn.Sequential(Linear(512, 1536), Linear(1536, 37), nn.LayerNorm(37)).cuda()]
    models += [copy.deepcopy(models[0]), copy.deepcopy(models[0]).double()]
    options: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": decoupled}
    mine, plain = (Adam(model.parameters(), **options, fused=True) for model in models[:2])
    exact = torch.optim.Adam(models[2].parameters(), **options)
    passes = CapturedBackward(lambda batch, scale: batch, models[0].parameters(), CUDA, adds=False)
    mine.follow(passes)
    for _ in range(2):
        with passes.half_weights, torch.autocast("cuda", torch.bfloat16):
            models[0](torch.randn(64, 512, device=CUDA))
    assert len(passes.half_weights.pairs) == 4
    for number, bad in enumerate((0.0, 0.0, 1.0, 0.0, 0.0)):
        for one, other, wide in zip(*(model.parameters() for model in models), strict=True):
            one.grad = torch.empty_like(one) if one.grad is None else one.grad
            one.grad.normal_().mul_(torch.nan if bad else 3.0)
            other.grad, wide.grad = one.grad.clone(), one.grad.double() / 2
        for either in (mine, plain):
            either.found_inf, either.grad_scale = torch.tensor(bad, device=CUDA), torch.tensor(2.0, device=CUDA)
            either.step()
        if not bad:
            exact.step()
        assert passes.half_weights.is_fresh == (number > 0)
        passes.half_weights.renew()
        for one, other, wide in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
            for name, true in exact.state[wide].items():
                ours, theirs = (
                    (x.state[w][name] - true.to(CUDA)).abs().amax() for x, w in ((mine, one), (plain, other))
                )
                assert ours <= 2 * theirs + torch.finfo(torch.float32).eps * true.abs().amax()
        assert all(torch.equal(weight.bfloat16(), narrow) for weight, narrow in passes.half_weights.pairs)


def test_a_captured_run_learns_what_a_plain_one_does(tmp_path: Path) -> None:
    job = TrainJob(
        CUDA, ModelSizes(64, 2, 200, num_heads=2, hidden_width=96, dropout=0.0), tokens=512, steps=8, warmup=1
    )
    work, found = job.works()[0], []
    config = config_of(job, work)
    material = batches.TrainingPairs.of([work.store(tmp_path / "store", job.sizes.vocabulary)])
    for capture in (True, False):
        torch.manual_seed(4)
        network = task.model(config, (word_tokenizer(job.sizes.vocabulary),) * 2).train()
        settled = batches.settle(config, network, material, Console(quiet=True))
        plan = batches.plan(settled, material)
        options = replace(
            devices.training_options(config, network), capture=capture, learning_rate=0.01, warmup_steps=2
        )
        loss = batches.choose_loss(settled, network)
        seen: list[Any] = []

        def report(progress: Progress, measured: dict[str, Any], seen: list[Any] = seen) -> None:
            if "norm" in measured:
                seen.append((progress.step, measured["loss"], measured["norm"]))

        trainer = Trainer(network, plan, loss, options, tmp_path / str(capture))
        trainer.run(lambda: {"score": 0.0}, report)
        assert bool(trainer.optimizer._known) == capture
        found.append(torch.tensor(seen))
    assert len(found[0]) == 10
    torch.testing.assert_close(*found, rtol=0.05, atol=0.0)
    assert found[0][-1, 1] < found[0][0, 1]
