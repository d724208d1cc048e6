"""Trained runs, ready to use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from saccade.decoding import Ensemble
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.tasks import TASKS
from saccade.tasks.translate.corpora import fingerprint
from saccade.tasks.translate.predictor import Translator


def load_run(folder: Path | str, *others: Path | str) -> Any:
    """A trained run, ready to predict; several are an ensemble, decoded as the first one says."""
    first = _load_one(Path(folder))
    if not others:
        return first
    runs = [first, *(_load_one(Path(other)) for other in others)]
    for run, name in zip(runs, (folder, *others), strict=True):
        if not isinstance(run, Translator):
            raise UserError(f"{name}: it isn't text to text; an ensemble is of runs that are")
        for side in ("source", "target"):
            if fingerprint(getattr(run, side)) != fingerprint(getattr(first, side)):
                raise UserError(f"{name}: its {side} tokenizer differs from that of {folder}; an ensemble shares both")
    return replace(first, model=Ensemble([run.model for run in runs]))


def _load_one(folder: Path) -> Any:
    if not (folder / "config.yaml").exists():
        raise UserError(f"{folder}: not a run folder (it has no config.yaml)")
    if not (folder / "model.safetensors").exists():
        raise UserError(f"{folder}: no model yet; its training has not reached its first validation")
    config = config_file.load(folder / "config.yaml")
    return TASKS[config.task].load(config, folder)
