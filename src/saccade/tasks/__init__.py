"""Every task by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from saccade.config.base import RunSection
from saccade.tasks.base import Examined, Job
from saccade.tasks.caption import task as caption
from saccade.tasks.classify import task as classify
from saccade.tasks.glimpse import task as glimpse
from saccade.tasks.tag import task as tag
from saccade.tasks.translate import task as translate


class Task(NamedTuple):
    """A task is one file: its config, and from it to a run, to a trained model, and to its part of the report."""

    Config: type[RunSection]
    prepare: Callable[..., Job]  # (config, folder, console): what must outlive the run is stored in its folder
    load: Callable[..., Any]  # (config, folder): ready to predict
    examine: Callable[..., Examined]  # (config, predictor): on the test set, or the validation set


MODULES = {"translate": translate, "classify": classify, "tag": tag, "glimpse": glimpse, "caption": caption}
TASKS = {name: Task(task.Config, task.prepare, task.load, task.examine) for name, task in MODULES.items()}
