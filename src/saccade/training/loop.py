"""The training loop. Its step reads on one screen; a run that was killed goes on as if it had not been."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saccade.data.prefetch import Prefetcher
from saccade.errors import NonFiniteLoss
from saccade.ops.known_gradients import differentiate
from saccade.ops.precision import outputs_in
from saccade.training import checkpoints
from saccade.training.adam import Adam
from saccade.training.adaptation import adding_once
from saccade.training.averages import MovingAverage, average_files, copy_weights
from saccade.training.captured import Backward, CapturedBackward
from saccade.training.checkpoints import Progress
from saccade.training.determinism import repeat_exactly
from saccade.training.distributed import shards
from saccade.training.distributed.gradients import GradientSums
from saccade.training.distributed.team import ALONE, Team
from saccade.training.options import Batch, Loss, Plan, Report, TrainingOptions, Validate
from saccade.training.rate import Rate
from saccade.training.schedules import SCHEDULES
from saccade.training.signals import StopRequest, TrainingInterrupted, stop_on_signals

MANY_SKIPS = 10


class SentStep(NamedTuple):
    """A step that was sent to the device: the loss's sum and the gradients' norm, as soon as they are `ready`."""

    figures: Tensor
    num_items: int
    learning_rate: float
    ready: torch.cuda.Event | None

    def read_figures(self) -> dict[str, float]:
        """Wait for the device and return the figures."""
        if self.ready is not None:
            self.ready.synchronize()
        total, norm = self.figures.tolist()
        return {"loss": total / self.num_items, "norm": norm, "learning_rate": self.learning_rate}


@final
class EagerBackward:
    """A forward and a backward pass through one batch, operation by operation."""

    runs_hooks = True

    def __init__(self, loss: Loss, options: TrainingOptions) -> None:
        self.loss, self.device, self.dtype = loss, options.device, options.dtype
        self.output_dtype = options.output_dtype

    def __call__(self, batch: Batch, scale: float | Tensor) -> Tensor:
        with (
            torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32),
            outputs_in(self.output_dtype),
        ):
            loss, shown = self.loss(batch.to(self.device))
        if isinstance(scale, float) and scale == 1.0:
            differentiate(loss)
        else:
            (loss * scale).backward()
        return shown.detach()

    def excess(self, num_items: float) -> float:
        del num_items
        return 1.0


@final
class Trainer:
    """A model, its data, its loss and where it stands; `run` goes on from the last checkpoint in `folder`.

    In a team of processes each has a trainer, and all of them take the same steps.
    """

    def __init__(
        self, model: nn.Module, plan: Plan, loss: Loss, options: TrainingOptions, folder: Path, team: Team = ALONE
    ) -> None:
        self.model, self.plan = model.to(options.device), plan
        self.options, self.folder, self.team = options, folder, team
        self.optimizer = Adam.for_model(model, options)
        self.schedule = SCHEDULES[options.schedule](options.warmup_steps, options.max_steps)
        self.average = MovingAverage(model, options.ema)
        self.progress = self._restore()
        self.skipped_in_a_row = 0
        self.must_stop = False
        self.sums = GradientSums(model, team)
        is_cuda = options.device.type == "cuda"
        self.lag = int(is_cuda)  # an accelerator gets a step before the last one's figures are read
        self.sent: deque[tuple[SentStep, Progress]] = deque()
        self.rate = Rate()
        self.batches = Prefetcher(self._load, depth=2 * options.accumulate if is_cuda else 0)
        self.backward: Backward = EagerBackward(loss, options)
        if options.capture and is_cuda:
            captured = CapturedBackward(self.backward, model.parameters(), options.device, adds=options.accumulate > 1)
            self.backward = captured
            self.optimizer.follow(captured)

    def _restore(self) -> Progress:
        """Load the newest checkpoint that is whole. Without the best model, the next validation finds a new one."""
        has_best = self.team.broadcast(lambda: checkpoints.put_damaged_aside(self.folder))
        found = checkpoints.restore_checkpoint(self.checkpoints, self.model, self.optimizer, self.average.weights)
        progress = found or Progress()
        if progress.best_step and not has_best:
            progress.best_score, progress.best_step, progress.validated, progress.patience_used = None, 0, 0, 0
        return progress

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "checkpoints"

    @property
    def is_finished(self) -> bool:
        """True if nothing is left to do."""
        return self._has_ended and (self.progress.is_averaged or self.options.average_last < 2)

    @property
    def _has_ended(self) -> bool:
        """True if no step and no validation is left, or patience ran out."""
        patience, progress = self.options.patience, self.progress
        if patience is not None and progress.patience_used >= patience:
            return True
        return progress.step >= self.options.max_steps and not self._must_validate

    @property
    def _must_validate(self) -> bool:
        step = self.progress.step
        is_due = step % self.options.validate_every == 0 or step >= self.options.max_steps
        return step > 0 and is_due and self.progress.validated != step

    def step(self, batches: list[Batch], spare: Batch | None = None) -> SentStep:
        """Take forward and backward passes through every batch, then one update.

        Each process of a team has its share of the batches; a `spare` one counts for nothing.
        """
        rate = self._set_learning_rate()
        (num_items,) = self.team.sum_numbers(sum(batch.num_items for batch in batches))
        excess = self.backward.excess(num_items)
        self.optimizer.zero_grad(set_to_none=self.options.accumulate == 1)
        shown = torch.zeros((), device=self.options.device)
        for number, batch in enumerate(batches):
            self._seed(self.team.rank + number * self.team.size)
            self.sums.expect(last=number == len(batches) - 1 and self.backward.runs_hooks)
            shown += self.backward(batch, excess / num_items)
        if spare is not None:
            self.backward(spare, 0.0)
        self.sums.finish()
        norm = self._clip(excess)
        self.optimizer.found_inf = (~norm.isfinite()).float()  # then the step changes nothing
        self.optimizer.step()
        self.average.update(self.model, self.progress.step)
        return self._send(torch.stack([self.team.sum_tensor(shown), norm]), int(num_items), rate)

    def _set_learning_rate(self) -> float:
        rate = self.options.learning_rate * self.schedule(self.progress.step + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _clip(self, excess: float = 1.0) -> Tensor:
        """Scale all gradients so that their norm is no longer than allowed, and return it as it was.

        Gradients may be `excess` times too large. On an accelerator the optimizer divides them: one pass less.
        """
        learned = [parameter for parameter in self.model.parameters() if parameter.grad is not None]
        total = nn.utils.get_total_norm(cast(list[Tensor], [parameter.grad for parameter in learned]))
        norm = shards.join_shards(total) / excess
        if total.is_cuda and not shards.is_shard(total):
            self.optimizer.grad_scale = (norm / self.options.clip_norm).clamp(min=1.0) * excess
        else:
            assert excess == 1
            nn.utils.clip_grads_with_norm_(learned, self.options.clip_norm, norm)
        return norm

    def _send(self, figures: Tensor, num_items: int, rate: float) -> SentStep:
        """Send the figures to the host, without waiting."""
        figures = figures.to("cpu", non_blocking=True)
        ready = torch.cuda.Event() if self.lag else None
        if ready is not None:
            ready.record()
        return SentStep(figures, num_items, rate, ready)

    def _seed(self, place: int) -> None:
        """Make all random numbers a function of the step and of the batch's place in it."""
        torch.manual_seed(self.options.seed * 1_000_003 + self.progress.step + (place << 40))

    def run(self, validate: Validate, report: Report) -> Progress:
        """Train to the end. A stop request saves first; a kill costs only the steps since the last checkpoint."""
        with stop_on_signals() as stop, repeat_exactly(self.options.device):
            try:
                self._run(validate, report, stop)
            except KeyboardInterrupt:
                self._settle(report)
                self.save()
                self.team.wait()  # one that ends early has the others killed
                raise TrainingInterrupted from None
            finally:
                self.batches.close()
        self.save()
        return self.progress

    def request_stop(self) -> None:
        """Stop after this step, as a signal does: save, and raise TrainingInterrupted."""
        self.must_stop = True

    def _run(self, validate: Validate, report: Report, stop: StopRequest) -> None:
        epoch = -1
        batches: Sequence[Any] = ()
        while not self._has_ended:
            if epoch != self.progress.epoch:
                epoch, batches = self.progress.epoch, self.plan.epoch(self.progress.epoch)
            if self._must_validate:
                self._settle(report)
                with self.rate.pause():
                    report(self.progress, self._validate(validate, stop))
            else:
                self._next_step(batches)
                self._settle(report, leave=self.lag)
            if self.progress.step % self.options.save_every == 0:
                self._settle(report)
                if not self.skipped_in_a_row:
                    self.save()
            if any(self.team.sum_numbers(stop.is_requested or self.must_stop)):
                raise KeyboardInterrupt
        self._settle(report)
        if not self.is_finished:
            report(self.progress, self._try_average(validate, stop))

    def _next_step(self, batches: Sequence[Any]) -> None:
        progress, size = self.progress, self.options.accumulate
        together = batches[progress.batch : progress.batch + size]
        rows = [row for _, row in self.team.share(together)]
        after = progress.batch + size
        later = [row for at in range(2) for _, row in self.team.share(batches[after + at * size :][:size])]
        loaded = [self.batches.take(row, [*rows[n + 1 :], *later]) for n, row in enumerate(rows)]
        stepped = self.step(loaded, self._spare(together))
        progress.step, progress.items = progress.step + 1, progress.items + stepped.num_items
        progress.batch, progress.is_averaged = min(after, len(batches)), False
        if progress.batch == len(batches):
            progress.epoch, progress.batch = progress.epoch + 1, 0
        self.sent.append((stepped, replace(progress)))

    def _spare(self, together: Sequence[Any]) -> Batch | None:
        """Load a zero-weight batch for a process with fewer: sharded models need all processes in every pass."""
        is_short = len(self.team.share(together)) < len(together[:: self.team.size])
        return self._load(together[0]) if is_short and shards.is_sharded(self.model) else None

    def _settle(self, report: Report, *, leave: int = 0) -> None:
        """Read and report the steps that were sent, but for the last few."""
        while len(self.sent) > leave:
            stepped, progress = self.sent.popleft()
            measured = stepped.read_figures()
            rate = self.rate.add(stepped.num_items)
            is_finite = math.isfinite(measured["norm"])
            self._count_skips(is_finite)
            skipped = {} if is_finite else {"skipped": self.progress.skipped}
            report(replace(progress, skipped=self.progress.skipped), {**measured, **skipped, "items_per_second": rate})

    def _load(self, rows: Any) -> Batch:
        """Load a batch, into pinned memory if an accelerator will fetch it."""
        batch: Batch = self.plan.load(rows)
        if not self.lag:
            return batch
        pinned: Batch = pytree.tree_map_only(Tensor, Tensor.pin_memory, batch)
        return pinned

    def _validate(self, validate: Validate, stop: StopRequest) -> dict[str, float]:
        progress = self.progress
        with self.average.swap_into(self.model):
            found = self._measure(validate, stop)
            if self.options.average_last > 1:
                self._remember()
            if self._is_best(found):
                progress.best_score, progress.best_loss = found["score"], found.get("valid_loss")
                progress.best_step, progress.patience_used = progress.step, 0
                self._keep()
            else:
                progress.patience_used += 1
        progress.validated = progress.step
        return found

    def _is_best(self, found: dict[str, float]) -> bool:
        """Return whether this validation has the best score so far; of equal scores, whether it has the lower loss."""
        score, best, best_loss = found["score"], self.progress.best_score, self.progress.best_loss
        if best is None or score != best:
            return math.isfinite(score) and (best is None or score > best)
        return best_loss is not None and found.get("valid_loss", math.inf) < best_loss

    def _measure(self, validate: Validate, stop: StopRequest) -> dict[str, float]:
        """Validate on the first process with the weights as they are now, and tell the others."""

        def measure() -> dict[str, float]:
            with stop.at_once():
                return validate()

        self.model.eval()
        try:
            with shards.unshard(self.model), adding_once(self.model):
                return self.team.broadcast(measure)
        finally:
            self.model.train()

    def _keep(self) -> None:
        """Save the weights as they are now as the model."""
        checkpoints.save_weights(self.folder / "model.safetensors", self.model, writes=self.team.is_first)

    def _remember(self) -> None:
        """Save the weights of this validation, for the average at the end."""
        folder, writes = self.folder / "validated", self.team.is_first
        path = checkpoints.checkpoint_path(folder, self.progress.step)
        checkpoints.save_weights(path, self.model, writes=writes, merges=False)  # their average is copied back
        if writes:
            checkpoints.remove_old(folder, self.options.average_last)

    def _try_average(self, validate: Validate, stop: StopRequest) -> dict[str, float]:
        """Validate the mean of the last validated weights; it becomes the model if it is better than the best."""
        self.team.wait()  # the first has written them
        files = checkpoints.list_checkpoints(self.folder / "validated")
        own = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
        copy_weights(self.model, average_files(files) if files else own)
        try:
            found = self._measure(validate, stop)
            if self._is_best(found):
                self.progress.best_score, self.progress.best_loss = found["score"], found.get("valid_loss")
                self._keep()
        finally:
            copy_weights(self.model, own)
        self.progress.is_averaged = True
        return {**found, "averaged": self.options.average_last}

    def save(self) -> None:
        state = (self.model, self.optimizer, self.average.weights, self.progress)
        with self.rate.pause():
            checkpoints.save_checkpoint(self.checkpoints, *state, writes=self.team.is_first)

    def _count_skips(self, is_finite: bool) -> None:
        self.skipped_in_a_row = 0 if is_finite else self.skipped_in_a_row + 1
        self.progress.skipped += not is_finite
        if self.skipped_in_a_row >= MANY_SKIPS:
            what = f"the loss was not finite {MANY_SKIPS} times in a row, up to step {self.progress.step}"
            raise NonFiniteLoss(f"{what}; the last good checkpoint is kept (a smaller learning_rate may help)")
