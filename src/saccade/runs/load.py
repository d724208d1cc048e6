"""Loads trained runs as predictors."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from saccade.errors import UserError
from saccade.export.choice import TORCH, EngineChoice, EngineName, Quantization
from saccade.export.engine import use_engine
from saccade.runs import config as config_file
from saccade.runs.check import CONFIG, MODEL, check_for_use
from saccade.runs.room import bound_network
from saccade.tasks import TASKS, devices
from saccade.tasks.base import Predictor

FILLS = (Tensor.uniform_, Tensor.normal_, init.kaiming_uniform_, init.xavier_uniform_, init.uniform_, init.normal_)
AnyPath = str | os.PathLike[str]


def load(
    folder: AnyPath,
    *others: AnyPath,
    device: str | None = None,
    engine: EngineName = "torch",
    quantization: Quantization = "float32",
    shortlist: AnyPath | None = None,
) -> Predictor:
    """Load a trained run, given as its folder or as what `train` returned: a `Predictor` of its task's class.

    Several are an ensemble, decoded as the first one says. `device` (auto, cpu, cuda) is theirs unless it is given.
    `engine` searches for outputs; `quantization` is how its numbers are stored; `shortlist` is a file of the ids that
    outputs may have.
    """
    choice = EngineChoice(engine, quantization, None if shortlist is None else Path(shortlist))
    predictor: Predictor = load_run(folder, *others, device=device, engine=choice)
    return predictor


def load_run(folder: AnyPath, *others: AnyPath, device: str | None = None, engine: EngineChoice = TORCH) -> Any:
    """Load a run as `load` does, for callers that know its task and so the predictor's class."""
    if engine.name == "auto" and (others or device == "cuda"):  # only torch runs these
        engine = engine._replace(name="torch")
    if engine != TORCH:
        return use_engine(_load_for_engine(Path(folder), others, device, engine.name), engine)
    first = _load_one(Path(folder), device)
    if not others:
        return first
    more = [(str(other), _load_one(Path(other), device)) for other in others]
    return first.ensemble([(str(folder), first), *more])


def _load_for_engine(folder: Path, others: Sequence[AnyPath], device: str | None, name: str) -> Predictor:
    """Load a run whose outputs another engine searches for, on a CPU."""
    if others:
        raise UserError(f"engine: {name} given with an ensemble; it runs one model, the engine torch several")
    if device == "cuda" and name != "torch":
        raise UserError(f"device: cuda given with the engine {name}, which runs on the CPU; allowed: cpu, auto")
    return _load_one(folder, device if name in ("torch", "auto") else "cpu")


def read_trained(folder: Path, field: str = "") -> Any:
    """Return the config of a trained run whose files are as training left them; messages begin with the field."""
    if not (folder / CONFIG).exists():
        raise UserError(f"{field}{folder}: this is not a run folder (it has no {CONFIG})")
    if not (folder / MODEL).exists():
        why = "training has not reached its first validation, or the file was removed"
        raise UserError(f"{field}{folder}: there is no {MODEL}; {why}")
    check_for_use(folder)
    return config_file.load_config(folder / CONFIG)


@final
class _SkippedInitialization(TorchFunctionMode):
    """Leaves first weights unset: all those of the run follow. Drawing a base model's took most of its load."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        first = args[0] if args else given.get("tensor")
        if func in FILLS and isinstance(first, nn.Parameter):  # what others are made of is needed
            return first
        return func(*args, **given)


def _load_one(folder: Path, device: str | None) -> Predictor:
    config = read_trained(folder)
    if device is not None:
        config = config.model_copy(update={"device": device})
        devices.device_for(config)  # refuses one that isn't there
    try:
        with bound_network(1, torch.device("cpu")), _SkippedInitialization():
            return TASKS[config.task].load(config, folder)
    except FileNotFoundError as error:  # only training writes into a run
        name = error.filename or folder
        raise UserError(f"{name}: this file of the run is missing; put it back, or train the run again") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{folder}: one of its files is damaged, it is not JSON ({error})") from None
