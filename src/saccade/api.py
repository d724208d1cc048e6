"""What Python programs call to train and to evaluate; `load` is in `saccade.runs.load`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from rich.console import Console

from saccade.config.base import RunSection, Section
from saccade.datasets.bring import point_to_data
from saccade.errors import UserError
from saccade.runs import adapt
from saccade.runs import config as config_file
from saccade.runs import train as runs
from saccade.runs.events import Callback
from saccade.runs.load import AnyPath, load
from saccade.runs.recipes import find_config
from saccade.tasks.base import Evaluation, Predictor


@final
@dataclass(frozen=True)
class TrainedRun(os.PathLike[str]):
    """A run after training. It stands for its folder: `load(run)`, `evaluate(run)`, `Path(run)`."""

    folder: Path
    step: int
    best_score: float | None  # of the validation that the model is from; None before the first one
    best_step: int

    def __fspath__(self) -> str:
        return str(self.folder)


def train(
    config: AnyPath | Mapping[str, Any] | RunSection,
    overrides: Mapping[str, Any] | None = None,
    *,
    folder: AnyPath | None = None,
    callbacks: Sequence[Callback] = (),
    device: str | None = None,
    threads: int | None = None,
    quiet: bool = False,
) -> TrainedRun:
    """Train a model, or go on with the run in the folder, as `saccade train` does.

    `config` is the path of a YAML file, the name of a recipe, a mapping of sections, or a config object; `overrides`
    changes fields, {"training.max_steps": 100}, and {"from": run} begins with another run. Without a folder, a file or
    recipe trains in runs/<its name>. Each of the `callbacks` is called with a `TrainingEvent` after every step and
    validation. `quiet` shows no progress.
    """
    path = None if isinstance(config, RunSection | Mapping) else find_config(Path(config))
    place = Path("runs") / path.stem if folder is None and path is not None else Path(folder or "")
    changes = {**(overrides or {}), **({} if device is None else {"device": device})}
    checked = _read_config(config if path is None else path, changes, partial(adapt.fill_in, run=place))
    if folder is None and path is None:
        raise UserError("folder: none given; a config that is not a file needs one")
    point_to_data(checked)
    progress = runs.train(checked, place, Console(quiet=quiet), threads=threads, callbacks=callbacks)
    return TrainedRun(place, progress.step, progress.best_score, progress.best_step)


def evaluate(run: AnyPath | Predictor, *files: AnyPath, device: str | None = None, **options: Any) -> Evaluation:
    """Score a run, or what `load` returned, on the files of a test set, as `saccade evaluate` does.

    Without files it is the test set that the run's config names (data.test). The options are those of the command:
    beam, length_penalty, no_repeat_ngram and others of decoding, tokenize, threshold.
    """
    paths = [Path(file) for file in files]
    if isinstance(run, str | os.PathLike):
        predictor = load(run, device=device)
        if not paths and predictor.traits.needs_files:
            paths = list_test_files(Path(run))
    else:
        predictor = run
        if device is not None:
            raise UserError(f"device: {device} given with a loaded run, which has one already; give it to load")
        if not paths and predictor.traits.needs_files:
            raise UserError("files: none given; a loaded run needs the files of a test set")
    return predictor.evaluate(paths, **options)


def list_test_files(folder: Path) -> list[Path]:
    """Return the files of the test set that a run's config names."""
    test = getattr(config_file.load_config(folder / "config.yaml").data, "test", None)
    given: Iterable[Any] = test.model_dump().values() if isinstance(test, Section) else [test]
    found = [Path(name) for name in given if isinstance(name, str)]
    if not found:
        raise UserError("files: none given, and the run's config names no test set (data.test)")
    return found


def _read_config(
    config: AnyPath | Mapping[str, Any] | RunSection, overrides: dict[str, Any], fill_in: config_file.FillIn
) -> Any:
    """Return the checked config, with what it leaves to the run it begins with."""
    if isinstance(config, RunSection | Mapping):
        content = config.model_dump() if isinstance(config, RunSection) else dict(config)
        return config_file.check_config(fill_in(config_file.override_fields(content, overrides)), "config")
    return config_file.load_config(Path(config), overrides, fill_in)
