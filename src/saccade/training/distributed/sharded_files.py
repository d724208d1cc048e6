"""Checkpoints of sharded models: a folder in which every process writes its parts (torch's distributed checkpoints).

They are safetensors files, whose headers say which part of which tensor they hold. So another number of processes can
read them, and one alone too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

FACTS = "progress.json"
CHECKSUMS = "sha256"


def save_parts(tensors: Mapping[str, Tensor], folder: Path, facts: dict[str, Any]) -> None:
    """Write tensors, each process its parts; the folder is there when all of it is there."""
    from torch.distributed.checkpoint.api import CheckpointException  # imports take a second
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    draft, is_first = folder.with_name(f".{folder.name}-draft"), distributed.get_rank() == 0
    if is_first:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
    distributed.barrier()
    writer = HuggingFaceStorageWriter(str(draft), save_distributed=True)
    try:
        save(dict(tensors), storage_writer=writer)
    except CheckpointException as error:
        if is_first:
            shutil.rmtree(draft, ignore_errors=True)
        causes = [failure for failure, _ in error.failures.values()]
        raise next((cause for cause in causes if isinstance(cause, OSError)), OSError(str(causes[0]))) from None
    if is_first:
        sums = {path.name: _checksum(path) for path in sorted(draft.iterdir())}
        (draft / FACTS).write_text(json.dumps({**facts, CHECKSUMS: sums}), "utf-8")
        for path in draft.iterdir():
            with path.open("rb") as written:
                os.fsync(written.fileno())
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    distributed.barrier()


def load_parts(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Fill tensors, sharded or whole, from the parts that they need."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process alone may read them
        load(dict(tensors), storage_reader=reader, no_dist=not distributed.is_initialized())


def list_parts(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Return the sizes and types of all tensors, by name."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    found: Any = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {name: (one.size, one.properties.dtype) for name, one in found.items()}


def read_facts(folder: Path) -> dict[str, Any]:
    """Return what is told beside the tensors."""
    facts: dict[str, Any] = json.loads((folder / FACTS).read_text("utf-8"))
    del facts[CHECKSUMS]
    return facts


def check_parts(folder: Path) -> None:
    """Raise a ValueError if a file is missing or has changed since it was written."""
    for name, known in json.loads((folder / FACTS).read_text("utf-8"))[CHECKSUMS].items():
        if _checksum(folder / name) != known:
            raise ValueError(f"{name} has changed since it was written")


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
