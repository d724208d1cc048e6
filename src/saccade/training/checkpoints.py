"""Checkpoints: one safetensors file each, complete or absent; a damaged one doesn't cost the earlier ones.

Those of a sharded model are folders, in which every process writes its part.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize

from saccade.errors import UserError
from saccade.files import replace_file
from saccade.training.distributed import sharded_files
from saccade.training.distributed.shards import gather_shards, is_shard, shard_like

PARTS = ".parts"  # the ending of a folder
NAME = re.compile(r"step-(\d{9})\.(safetensors|parts)")
FACTS, CHECKSUM = "progress", "sha256"
DAMAGE = (SafetensorError, OSError, ValueError, TypeError, KeyError)


@final
@dataclass
class Progress:
    """The progress of a run. All randomness is a function of the seed and these numbers, so nothing else is stored."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # the next one of this epoch
    items: int = 0  # seen so far: tokens, sentences, pictures
    skipped: int = 0
    validated: int = 0  # the last step that was validated
    best_score: float | None = None
    best_loss: float | None = None  # of the validation with the best score, if it measured one
    best_step: int = 0
    patience_used: int = 0
    is_averaged: bool = False  # the average at the end has been tried


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: dict[str, Tensor],
    progress: Progress,
    *,
    keep: int = 2,
    writes: bool = True,
) -> None:
    """Write a checkpoint and remove the oldest beyond `keep`. Every process of a team gives its part; one writes."""
    tensors = {f"model.{name}": value for name, value in unique_state(model).items()}
    state = optimizer.state_dict()["state"]
    tensors |= {f"optimizer.{index}.{key}": value for index, slots in state.items() for key, value in slots.items()}
    tensors |= {f"average.{name}": value for name, value in average.items()}
    path = checkpoint_path(folder, progress.step)
    if any(map(is_shard, tensors.values())):
        sharded_files.save_parts(tensors, path.with_suffix(PARTS), asdict(progress))
    elif writes:
        with replace_file(path) as draft:
            _write(tensors, draft, asdict(progress))
    if writes:
        remove_old(folder, keep)


def remove_old(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the newest `keep`."""
    for old in list_checkpoints(folder)[:-keep]:
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink(missing_ok=True)


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the path of a step's checkpoint."""
    return folder / f"step-{step:09d}.safetensors"


def save_weights(path: Path, model: nn.Module, *, writes: bool = True, merges: bool = True) -> None:
    """Write the weights alone, for prediction: those of adapters are part of the weights they adapt, if it `merges`."""
    weights = gather_shards(merged_state(model) if merges else unique_state(model), keep=writes)
    if writes:
        with replace_file(path) as draft:
            _write(weights, draft, {})


IS_MAPPED = ContextVar("IS_MAPPED", default=False)


@contextmanager
def map_weights() -> Iterator[None]:
    """Let models inside the block keep the mapped bytes of their files: processes of one machine share them.

    Their files must not be written to, only replaced.
    """
    token = IS_MAPPED.set(True)
    try:
        yield
    finally:
        IS_MAPPED.reset(token)


def load_weights(path: Path, model: nn.Module) -> None:
    """Load weights into a model of the same shape."""
    weights = read_weights(path)
    if not IS_MAPPED.get():
        _load_unique(weights, model, str(path))
        return
    _check_same(weights, model, str(path))
    for name, tensor in model.state_dict(keep_vars=True).items():
        if name in weights:
            tensor.data = weights[name].to(tensor.dtype)  # what is tied stays tied


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of a file, which must be as it was written."""
    try:
        return _read(path)[0]
    except DAMAGE as error:
        raise UserError(f"{path} is damaged ({error}); train again, or copy the file again") from None


def restore_checkpoint(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, average: dict[str, Tensor]
) -> Progress | None:
    """Load the newest checkpoint into model, optimizer and average; return None if there is none."""
    *_, path = [None, *list_checkpoints(folder)]
    if path is None:
        return None
    tensors, facts = _read_parts(path, model, optimizer, average) if path.suffix == PARTS else _read(path)
    _restore_state(tensors, model, optimizer)
    for name, weight in average.items():
        weight.copy_(shard_like(tensors[f"average.{name}"], weight))
    return Progress(**facts)


def _read_parts(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, average: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what this process needs of a folder of parts, sharded as the model is here."""
    like = {f"model.{name}": tensor for name, tensor in unique_state(model).items()}
    like |= {f"average.{name}": tensor for name, tensor in average.items()}
    learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    tensors = dict[str, Tensor]()
    for name, (size, dtype) in sharded_files.list_parts(path).items():
        _, place, *_ = name.split(".")
        one = learned[int(place)] if name.startswith("optimizer.") and len(size) else like.get(name)
        tensors[name] = torch.zeros(size, dtype=dtype) if one is None else torch.zeros_like(one.detach(), dtype=dtype)
    sharded_files.load_parts(tensors, path)
    return tensors, sharded_files.read_facts(path)


def put_damaged_aside(folder: Path) -> bool:
    """Give damaged files of a run's weights another name, with a warning; return whether its best model is left.

    If every checkpoint is damaged, the run is refused as it is.
    """
    found, model = list_checkpoints(folder / "checkpoints"), folder / "model.safetensors"
    present = [*found, *list_checkpoints(folder / "validated"), *([model] if model.exists() else [])]
    damaged = [path for path in present if not is_whole(path)]
    if found and set(found) <= set(damaged):
        raise UserError(f"{found[-1]} is damaged, and no other checkpoint is left; give another folder (--run)")
    for path in damaged:
        path.rename(path.with_name(f"damaged-{path.name}"))
        where = [other.name for other in found if other not in damaged][-1:] or ["its beginning"]
        warnings.warn(f"{path} is damaged; the run goes on from {where[0]} without it", stacklevel=2)
    return model.exists()


def is_whole(path: Path) -> bool:
    """Return whether a file of weights is as it was written."""
    try:
        if path.suffix == PARTS:
            sharded_files.check_parts(path)
        Progress(**(sharded_files.read_facts(path) if path.suffix == PARTS else _read(path)[1]))
    except DAMAGE:
        return False
    return True


def _write(tensors: dict[str, Tensor], draft: Path, facts: dict[str, Any]) -> None:
    """Write a file of tensors with some facts and a checksum.

    They are one entry of the file's metadata: safetensors writes several in a random order, and equal runs must have
    equal files.
    """
    with disk_errors():
        save_file(tensors, draft, {FACTS: json.dumps({**facts, CHECKSUM: _checksum(tensors, facts)})})


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raise an OSError for a full disk inside the block, also when tensors are written."""
    try:
        yield
    except SafetensorError as error:
        found = re.search(r"\(os error (\d+)\)", str(error))  # as "I/O error: No space left on device (os error 28)"
        number = int(found[1]) if found else errno.EIO
        raise OSError(number, os.strerror(number) if found else str(error)) from None


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of tensors and its facts; one whose bytes have changed since it was written raises a ValueError.

    Files of earlier versions have no checksum, and weights of earlier versions no facts.
    """
    with safe_open(path, framework="pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        facts = json.loads((stored.metadata() or {}).get(FACTS, "{}"))
    if CHECKSUM in facts and facts.pop(CHECKSUM) != _checksum(tensors, facts):
        raise ValueError("its bytes have changed since it was written")
    return tensors, facts


def _checksum(tensors: dict[str, Tensor], facts: dict[str, Any]) -> str:
    """Return a SHA-256 of facts, names, types, shapes and values."""
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    return sorted((path for path in folder.glob("step-*") if NAME.fullmatch(path.name)), key=lambda path: path.stem)


def unique_state(model: nn.Module) -> dict[str, Tensor]:
    """Return each tensor once, under its first name: tied weights are one."""
    names: dict[Tensor, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names.setdefault(tensor, name)
    return {name: tensor.detach().contiguous() for tensor, name in names.items()}


def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """Return each tensor once, as the model computes with it: without adapters, which are added to their weights."""
    state = unique_state(model)
    for path, module in model.named_modules():
        if parametrize.is_parametrized(module):
            state = {name: tensor for name, tensor in state.items() if not name.startswith(f"{path}.parametrizations.")}
            names = cast(nn.ModuleDict, module.parametrizations)
            state |= {f"{path}.{name}": getattr(module, name).detach().contiguous() for name in names}
    return state


def _load_unique(weights: dict[str, Tensor], model: nn.Module, name: str) -> None:
    """Load every tensor of the model once."""
    own = _check_same(weights, model, name)
    weights = {name: shard_like(tensor, own[name]) for name, tensor in weights.items()}
    model.load_state_dict(weights, strict=False)  # the other names of tied tensors follow


def _check_same(weights: dict[str, Tensor], model: nn.Module, name: str) -> dict[str, Tensor]:
    """Return the model's tensors; none may be missing, left over or of another shape."""
    own, other = unique_state(model), f"{name}: these weights belong to another model than config.yaml makes"
    if different := weights.keys() ^ own.keys():
        raise UserError(f"{other}; only one of them has {', '.join(sorted(different)[:3])}")
    for key, tensor in weights.items():
        if tensor.shape != own[key].shape:
            raise UserError(f"{other}; {key} is {_size(tensor)} here and {_size(own[key])} there")
    return own


def _size(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape))


def _restore_state(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    _load_unique(weights, model, "checkpoint")
    learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    slots: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            like = learned[int(index)] if key != "step" else tensor
            slots.setdefault(int(index), {})[key] = shard_like(tensor, like)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})
