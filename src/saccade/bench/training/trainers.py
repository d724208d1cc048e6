"""The training loops on an accelerator: ours, and the usual loop of each peer's users."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from rich.console import Console
from torch import nn

from saccade.bench.peers.models import SMOOTHING, LoopRnn, Marian, TorchTransformer
from saccade.bench.training.flops import ModelSizes
from saccade.bench.training.sentences import PaddedBatch, TrainingText, log_normal, multi30k, padded_batches, rectangle
from saccade.data.store import Store
from saccade.data.text.tokenizer import SPECIAL, Vocabulary
from saccade.tasks import devices
from saccade.tasks.translate import batches as batching
from saccade.tasks.translate import task
from saccade.tasks.translate.config import TranslateConfig
from saccade.training.checkpoints import Progress
from saccade.training.loop import Trainer

NEVER = (1 << 31) - 1  # steps
RECURRENT_BATCHES, RECURRENT_LENGTH = (80, 512), 30


@final
@dataclass(frozen=True)
class TrainJob:
    """The model, batches, steps and peers of a training benchmark."""

    device: torch.device
    sizes: ModelSizes
    tokens: int = 25_600  # of either side, a step
    steps: int = 20  # counted ones
    warmup: int = 5
    peers: tuple[str, ...] = ()
    num_widths: int = 6  # shapes that a compiled peer sees; 0: any, with one graph for all of them
    mean_length: float = 28.0
    data: Path | None = None  # Multi30k's folder, whose lengths are taken instead
    recurrent_batches: tuple[int, ...] = RECURRENT_BATCHES

    @property
    def ahead(self) -> int:
        """The number of steps that our loop queues before it reads the figures of one."""
        return int(self.device.type == "cuda")

    @property
    def num_batches(self) -> int:
        """The number of batches in the text: enough that some batches of every width are full."""
        return max(64, 2 * (self.steps + self.warmup))

    def works(self) -> list[TrainingText]:
        """Return the training texts: drawn lengths, and rectangles without padding."""
        count = self.warmup + self.ahead + self.steps
        if self.sizes.is_recurrent:
            return [rectangle(batch, RECURRENT_LENGTH, count) for batch in self.recurrent_batches]
        return [self.draw_text(), rectangle(self.tokens // 32, 32, count)]

    def draw_text(self) -> TrainingText:
        if self.data is not None:
            return multi30k(self.data, self.tokens, self.num_batches)
        return log_normal(self.mean_length, self.tokens, self.num_batches)


class TrainOutcome(NamedTuple):
    """The tokens and times that a training was measured by."""

    tokens: int  # real target ones
    seconds: float
    setup_seconds: float  # of the warm-up, in which a model is built and compiled
    real_share: float | None = None  # of the peers' target tokens; the rest is padding


class ModelPeer(NamedTuple):
    """A peer that trains the same model: its title, and how it is built."""

    title: str
    build: Callable[[ModelSizes], nn.Module]
    is_recurrent: bool = False
    is_compiled: bool = False


PEERS = {
    "torch": ModelPeer("torch.nn.Transformer", TorchTransformer),
    "torch-compiled": ModelPeer("torch.nn.Transformer, compiled", TorchTransformer, is_compiled=True),
    "marian": ModelPeer("Hugging Face Marian", Marian),
    "marian-compiled": ModelPeer("Hugging Face Marian, compiled", Marian, is_compiled=True),
    "loop": ModelPeer("step-by-step loop", LoopRnn, is_recurrent=True),
    "loop-compiled": ModelPeer("step-by-step loop, step compiled", LoopRnn, is_recurrent=True, is_compiled=True),
}


class _Enough(Exception):
    """Raised after the last step, where the loop would validate, so that no checkpoint is saved."""


def config_of(job: TrainJob, work: TrainingText) -> TranslateConfig:
    """Write the job as a config of ours."""
    sizes = job.sizes
    model: dict[str, Any] = {"width": sizes.width, "num_layers": sizes.num_layers, "dropout": sizes.dropout}
    if sizes.is_recurrent:
        model |= {"kind": "rnn", "embedding_width": sizes.embedding_width}
    else:
        model |= {"kind": "transformer", "num_heads": sizes.num_heads, "hidden_width": sizes.hidden_width}
    training = {
        "max_steps": job.warmup + job.ahead + job.steps,
        "tokens_per_batch": work.tokens,
        "label_smoothing": SMOOTHING,
        "precision": "auto" if job.device.type == "cuda" else "float32",
        "validate_every": NEVER,
        "save_every": NEVER,
    }
    longest = int(max(work.source_N.max(), work.target_N.max()))
    data = {"train": {"source": "nowhere"}, "valid": {"source": "nowhere"}, "max_length": longest}
    sections = {"data": data, "tokenizer": {"vocabulary_size": sizes.vocabulary}, "model": model, "training": training}
    return TranslateConfig.model_validate({"device": job.device.type, **sections})


def word_tokenizer(count: int) -> Vocabulary:
    """Return a tokenizer with a vocabulary of `count` words."""
    return Vocabulary([*SPECIAL, *map(str, range(count))][:count], "words")


def measure_ours(job: TrainJob, work: TrainingText, store: Store) -> TrainOutcome:
    """Train with our own loop, as `saccade train` runs it."""
    config, started = config_of(job, work), time.perf_counter()
    network = task.model(config, (word_tokenizer(job.sizes.vocabulary),) * 2).train()
    material = batching.TrainingPairs.of([store])
    config = batching.settle(config, network, material, Console(quiet=True))
    plan = batching.plan(config, material)
    times, items, last_step = [], [], job.warmup + job.ahead + job.steps

    def mark(progress: Progress, measured: dict[str, Any]) -> None:
        del measured
        if progress.step in (job.warmup, last_step):
            times.append(synchronized_time(job.device))  # when the steps that were sent ahead are done, too
        if progress.step in (job.warmup + job.ahead, last_step):
            items.append(progress.items)

    def enough() -> dict[str, float]:
        raise _Enough

    with tempfile.TemporaryDirectory(prefix="saccade-bench-") as scratch:
        loss = batching.choose_loss(config, network)
        options = replace(devices.training_options(config, network), capture=batching.is_steady(config))
        trainer = Trainer(network, plan, loss, options, Path(scratch))
        try:
            trainer.run(enough, mark)
        except _Enough:
            first, last = times
    return TrainOutcome(items[1] - items[0], last - first, first - started)


def measure_peer(peer: ModelPeer, job: TrainJob, work: TrainingText, store: Store) -> TrainOutcome:
    """Train a peer with the usual loop of its users; the warm-up includes every width."""
    started = time.perf_counter()
    widths = job.num_widths or None if peer.is_compiled else None
    batches = padded_batches(work, store, num_widths=widths, count=job.steps)
    batches = [batch.to(job.device) for batch in batches]
    tokens = sum(batch.num_real for batch in batches)
    model = peer.build(job.sizes).to(job.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    step = functools.partial(_step, _runner(peer, model, is_dynamic=not job.num_widths), optimizer, job.device)
    each = {batch.source_BS.shape: batch for batch in batches}
    with torch._dynamo.config.patch(recompile_limit=64):
        for batch in [*each.values(), *batches[: job.warmup]]:
            step(batch)
        first = synchronized_time(job.device)
        for batch in batches:
            step(batch)
        last = synchronized_time(job.device)
    real_share = tokens / sum(batch.write_BT.numel() for batch in batches)
    return TrainOutcome(tokens, last - first, first - started, real_share)


def _runner(peer: ModelPeer, model: nn.Module, *, is_dynamic: bool) -> Callable[..., torch.Tensor]:
    """Compile the whole model, or only the step of a loop, because a graph of all steps takes too long to compile."""
    if not peer.is_compiled:
        return model
    if isinstance(model, LoopRnn):
        model.step = compile_function(model.step, dynamic=is_dynamic)  # type: ignore[method-assign]
        return model
    return compile_function(model, dynamic=is_dynamic)


def compile_function(function: Callable[..., Any], *, dynamic: bool) -> Callable[..., Any]:
    """Compile a function for each shape (fastest code), or once for all shapes (`dynamic`, ready soonest)."""
    return torch.compile(function, dynamic=dynamic)


def _step(
    run: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer, device: torch.device, batch: PaddedBatch
) -> None:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        loss = run(*batch)
    loss.backward()
    optimizer.step()


def synchronized_time(device: torch.device) -> float:
    """Wait until the device has finished, and return the time."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
