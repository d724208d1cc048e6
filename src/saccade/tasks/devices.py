"""Devices of a run: the one it computes on, and the options of a training there."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from saccade.config.base import RunSection
from saccade.errors import UserError
from saccade.ops import float8
from saccade.training import checkpoints
from saccade.training.distributed.shards import transformer_blocks
from saccade.training.distributed.team import ALONE, Team
from saccade.training.options import TrainingOptions
from saccade.training.precision import OUTPUT, compute_dtype, output_dtype

Module = TypeVar("Module", bound=nn.Module)


def device_for(config: RunSection) -> torch.device:
    """Return the device that a run trains on."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError("device: 'cuda' given, but torch sees no CUDA device here; allowed: auto, cpu")
    return _nearest_device(config)


def training_options(config: RunSection, network: nn.Module, team: Team = ALONE) -> TrainingOptions:
    """Make the options of training this network; of several processes each has its own accelerator."""
    section, place = config.training.settle_steps(), device_for(config)
    place = team.device if place.type == team.device.type else place
    if team.size > 1 and section.accumulate % team.size:
        wanted = f"training.accumulate: {section.accumulate} given for {team.size} processes"
        raise UserError(f"{wanted}; it must be a multiple of them, as each takes its share of a step's batches")
    names = {field.name for field in fields(TrainingOptions)}
    given: dict[str, Any] = {name: value for name, value in section if name in names - {"capture"}}  # a job says it
    precision = section.precision
    if precision == "float8":
        _check_float8(network, place)
    if precision == OUTPUT and place.type != "cpu":
        raise UserError(f"training.precision: {OUTPUT!r} given, which is for a CPU; allowed here: bfloat16, float32")
    output = output_dtype(precision, place, network)
    if place.type == "cpu" and any(isinstance(module, nn.RNNBase) for module in network.modules()):
        if precision == "bfloat16":
            raise UserError("training.precision: 'bfloat16' given; on a CPU RNNs train in float32 (or auto)")
        precision = "float32"
    dtype = compute_dtype(precision, place, network)
    return TrainingOptions(seed=config.seed, device=place, dtype=dtype, output_dtype=output, **given)


def _check_float8(network: nn.Module, place: torch.device) -> None:
    problem = float8.refuses(place) if transformer_blocks(network) else "it is for the blocks of Transformers"
    if problem is not None:
        raise UserError(f"training.precision: 'float8' given, but {problem}; allowed here: auto, float32, bfloat16")


def load_trained(network: Module, config: RunSection, folder: Path) -> Module:
    """Give a network the best weights of a run, and put it where it can compute."""
    checkpoints.load_weights(folder / "model.safetensors", network)
    return network.to(_nearest_device(config)).eval()


def _nearest_device(config: RunSection) -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() and config.device != "cpu" else "cpu")
