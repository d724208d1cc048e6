"""The length of a training: its steps, told by how many of them read all data once, and the line that says so."""

from __future__ import annotations

import math
from typing import TypeVar

from saccade.config.base import RunSection
from saccade.data.portions import Portions
from saccade.training.options import Plan

C = TypeVar("C", bound=RunSection)


def settle_steps(config: C, plan: Plan, epochs: int | None = None) -> C:
    """Return the config with its numbers of steps: where they are open, of so many epochs, or of the task's usual."""
    settled = config.training.settle_steps(steps_of_epoch(config, plan), epochs)
    return config.model_copy(update={"training": settled})


def steps_of_epoch(config: RunSection, plan: Plan) -> int:
    """Return the number of steps that read all data once."""
    portions = plan.num_portions if isinstance(plan, Portions) else 1
    return math.ceil(portions * len(plan.epoch(0)) / config.training.accumulate)


def describe_steps(config: RunSection, plan: Plan) -> str:
    """Say how long a run with settled numbers of steps trains."""
    training, epoch = config.training, steps_of_epoch(config, plan)
    steps, every = int(training.max_steps), int(training.validate_every)
    said = f"training: {steps:,} steps (max_steps), which read all data {steps / epoch:,.1f} times"
    patience = training.patience
    return said if patience is None else f"{said}; fewer if {patience} validations, one every {every:,}, are no better"
