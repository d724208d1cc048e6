"""Scores a trained run on a test set: files, or the test set that its config names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from saccade.config.base import Section
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs.load import load
from saccade.tasks.base import Evaluation, Predictor


def evaluate(run: Path | str | Predictor, *files: Path | str, device: str | None = None, **options: Any) -> Evaluation:
    """Score a run, given as its folder or as what `load` returned, on the files of a test set.

    Without files it is the test set that the run's config names. The options are those of `saccade evaluate`: of text
    to text those of decoding (beam, length_penalty ...) and tokenize, of several labels threshold.
    """
    folder = Path(run) if isinstance(run, str | Path) else None
    if folder is None and device is not None:
        raise UserError(f"device: {device} given with a loaded run, which has its device; give it to load")
    predictor = run if not isinstance(run, str | Path) else load(run, device=device)
    paths = [Path(file) for file in files]
    if not paths and predictor.traits.needs_files:
        if folder is None:
            raise UserError("files: none given; allowed with a loaded run: the files of a test set")
        paths = list_test_files(folder)
    return predictor.evaluate(paths, **options)


def list_test_files(folder: Path) -> list[Path]:
    """Return the files of the test set that a run's config names."""
    test = getattr(config_file.load_config(folder / "config.yaml").data, "test", None)
    given: Iterable[Any] = test.model_dump().values() if isinstance(test, Section) else [test]
    found = [Path(name) for name in given if isinstance(name, str)]
    if not found:
        raise UserError("files: none given, and the run's config names no test set (data.test)")
    return found
