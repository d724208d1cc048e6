"""What a task is: its config, and how a run of it is prepared, loaded and reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from saccade.config.base import RunSection
from saccade.training.options import Loss, Plan, Validate


class Job(NamedTuple):
    """A network, what it learns from, how, and how it is judged."""

    network: nn.Module
    plan: Plan
    loss: Loss
    validate: Validate
    data: list[str]  # hashes of what it learns from: a run goes on only with the same
    stored: Mapping[str, str] = {}  # small files that a trained run needs beside its weights: name and text
    is_steady: bool = False  # batches have few shapes and the loss asks the device nothing: it may be captured
    unit: str = "tokens"  # what the loss is a mean over
    config: RunSection | None = None  # with what it left to be found here


class ReportPart(NamedTuple):
    """A trained model on a held-out set: the set's name, its scores, and parts of the report as (heading, HTML)."""

    name: str
    scores: Mapping[str, Any]
    sections: Sequence[tuple[str, str]] = ()


class Task(NamedTuple):
    """A task: its config, and the way from there to a run, to a trained model, and to its part of the report."""

    config: type[RunSection]
    prepare: Callable[..., Job]  # (config, folder, console)
    load: Callable[..., Any]  # (config, folder): a trained model, ready to predict
    examine: Callable[..., ReportPart]  # (config, predictor): on the test set, or the validation set
