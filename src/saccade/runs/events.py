"""Events of a running training, for callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, final

from saccade.training.checkpoints import Progress
from saccade.training.loop import Trainer
from saccade.training.options import Report


@final
@dataclass(frozen=True)
class TrainingEvent:
    """A step or a validation of a training; a callback gets each of them.

    `figures` of a step: loss (the mean over its tokens, texts ...), norm (the gradients'), learning_rate,
    items_per_second. Of a validation: score (higher is better), and by name what the progress lines show, such as
    valid_loss, valid_bleu, valid_accuracy.
    """

    kind: Literal["step", "validation"]
    step: int  # so many are done
    max_steps: int
    epoch: int
    figures: Mapping[str, float]
    is_best: bool  # a validation with the best score so far: its weights are the run's model now
    _stop: Callable[[], None]

    @property
    def loss(self) -> float:
        """The loss of the step, or of the validation; NaN if it has none."""
        return self.figures.get("loss" if self.kind == "step" else "valid_loss", float("nan"))

    def stop(self) -> None:
        """Stop the training after this step: everything is saved, and the same call goes on from there."""
        self._stop()


Callback = Callable[[TrainingEvent], object]


def tell_callbacks(trainer: Trainer, callbacks: Sequence[Callback], report: Report) -> Report:
    """Return a report that is also told to callbacks."""
    if not callbacks:
        return report

    def report_and_tell(progress: Progress, measured: dict[str, Any]) -> None:
        report(progress, measured)
        is_step = "loss" in measured
        event = TrainingEvent(
            "step" if is_step else "validation",
            progress.step,
            trainer.options.max_steps,
            progress.epoch,
            MappingProxyType({name: value for name, value in measured.items() if isinstance(value, int | float)}),
            not is_step and progress.best_score == measured.get("score"),
            trainer.request_stop,
        )
        for callback in callbacks:
            callback(event)

    return report_and_tell
