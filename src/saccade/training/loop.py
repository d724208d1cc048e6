"""One loop. Its step reads on one screen; a run that was killed goes on as if it never had been."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from saccade.data.batches import Batch, BatchPlan
from saccade.training import checkpoints
from saccade.training.checkpoints import Progress
from saccade.training.losses import smoothed_cross_entropy
from saccade.training.schedules import SCHEDULES

MANY_SKIPS = 10


@final
@dataclass(frozen=True)
class Options:
    """How to train."""

    max_steps: int
    learning_rate: float
    warmup_steps: int
    schedule: str = "inverse_square_root"
    label_smoothing: float = 0.1
    clip_norm: float = 1.0
    weight_decay: float = 0.0
    adam_betas: tuple[float, float] = (0.9, 0.98)
    validate_every: int = 500
    save_every: int = 500
    patience: int | None = None
    seed: int = 1


class NonFiniteLoss(RuntimeError):
    """The loss was infinite or not a number too often in a row."""


Validate = Callable[[], dict[str, float]]  # a dict with "score": higher is better
Report = Callable[[Progress, dict[str, Any]], None]


@final
class Trainer:
    """A model, its data and where it stands; `run` goes on from the last checkpoint in `folder`."""

    def __init__(self, model: nn.Module, plan: BatchPlan, options: Options, folder: Path) -> None:
        self.model, self.plan, self.options, self.folder = model, plan, options, folder
        self.optimizer = torch.optim.AdamW(_groups(model, options.weight_decay), lr=1.0, betas=options.adam_betas)
        self.schedule = SCHEDULES[options.schedule](options.warmup_steps, options.max_steps)
        self.progress = checkpoints.restore(self.checkpoints, model, self.optimizer) or Progress()
        self.skipped_in_a_row = 0

    @property
    def checkpoints(self) -> Path:
        """Where they lie."""
        return self.folder / "checkpoints"

    @property
    def is_finished(self) -> bool:
        """No step is left, or patience ran out."""
        patience = self.options.patience
        worn_out = patience is not None and self.progress.patience_used >= patience
        return self.progress.step >= self.options.max_steps or worn_out

    def step(self, batch: Batch) -> dict[str, float]:
        """Forward, backward, update."""
        torch.manual_seed(self.options.seed * 1_000_003 + self.progress.step)  # dropout is a function of the step
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * self.schedule(self.progress.step + 1)
        loss, likelihood = loss_of(self.model, batch, self.options.label_smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        (loss / batch.num_target_tokens).backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)
        if norm.isfinite():
            self.optimizer.step()
        self._count_skips(bool(norm.isfinite()))
        return {"loss": float(likelihood) / batch.num_target_tokens, "norm": float(norm)}

    def run(self, validate: Validate, report: Report) -> Progress:
        """Train to the end. An interruption saves first; a kill costs the steps since the last checkpoint, no more."""
        try:
            while not self.is_finished:
                self._epoch(validate, report)
        except KeyboardInterrupt:
            self._save()
            raise
        self._save()
        return self.progress

    def _epoch(self, validate: Validate, report: Report) -> None:
        """The rest of the current epoch."""
        progress = self.progress
        batches = self.plan.epoch(progress.epoch)
        while progress.batch < len(batches) and not self.is_finished:
            batch = self.plan.load(batches[progress.batch])
            started = time.perf_counter()
            measured: dict[str, Any] = dict(self.step(batch))
            progress.step, progress.batch = progress.step + 1, progress.batch + 1
            progress.tokens += batch.num_target_tokens
            measured["tokens_per_second"] = batch.num_target_tokens / (time.perf_counter() - started)
            if progress.step % self.options.validate_every == 0 or progress.step == self.options.max_steps:
                measured |= self._validate(validate)
            report(progress, measured)
            if progress.step % self.options.save_every == 0 and not self.skipped_in_a_row:
                self._save()
        if progress.batch == len(batches):
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def _validate(self, validate: Validate) -> dict[str, float]:
        self.model.eval()
        found = validate()
        self.model.train()
        best = self.progress.best_score
        if best is None or found["score"] > best:
            self.progress.best_score, self.progress.best_step = found["score"], self.progress.step
            self.progress.patience_used = 0
            checkpoints.save_weights(self.folder / "model.safetensors", self.model)
        else:
            self.progress.patience_used += 1
        return found

    def _save(self) -> None:
        checkpoints.save(self.checkpoints, self.model, self.optimizer, self.progress)

    def _count_skips(self, is_finite: bool) -> None:
        self.skipped_in_a_row = 0 if is_finite else self.skipped_in_a_row + 1
        self.progress.skipped += not is_finite
        if self.skipped_in_a_row >= MANY_SKIPS:
            raise NonFiniteLoss(f"the loss was not finite {MANY_SKIPS} times in a row, up to step {self.progress.step}")


def loss_of(model: nn.Module, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss and negative log-likelihood of the real target tokens; padding is never projected."""
    vectors_BTD = model(batch.source_BS, batch.source_length_B, batch.read_BT)
    real_BT = torch.arange(batch.write_BT.shape[1], device=vectors_BTD.device) < batch.target_length_B[:, None]
    matrix_VD = model.get_parameter("target.weight")
    return smoothed_cross_entropy(vectors_BTD[real_BT], matrix_VD, batch.write_BT[real_BT], smoothing=smoothing)


def append_json(path: Path, row: dict[str, Any]) -> None:
    """One more line of a JSONL log."""
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(finite) + "\n")


def _groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Decay for matrices only: not for norms, biases or embeddings."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    matrices = [p for p in model.parameters() if p.dim() > 1 and id(p) not in embeddings]
    others = [p for p in model.parameters() if p.dim() <= 1 or id(p) in embeddings]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
