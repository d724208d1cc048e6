"""Refuses networks that a machine has no room for, while they are made and before anything is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from saccade.errors import UserError

TRAINED = 4  # what training stores for each number of a network: itself, its gradient and Adam's two moments
CGROUP = Path("/sys/fs/cgroup/memory.max")  # the limit of a container


@contextmanager
def bound_network(times: int, device: torch.device) -> Iterator[None]:
    """Refuse a network as soon as its numbers, stored so many times, exceed the memory of a device."""
    most, size, seen = total_memory(device), 0, set[int]()

    def count(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        nonlocal size
        if parameter is None or id(parameter) in seen:  # tied parameters are registered again
            return
        seen.add(id(parameter))
        size += times * parameter.numel() * parameter.element_size()
        if size > most:
            raise UserError(_describe(size, times, most, device))

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def total_memory(device: torch.device) -> int:
    """Return the bytes that a device has in all; those of a container, where it has fewer than the machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    total = psutil.virtual_memory().total
    with suppress(OSError, ValueError):  # there is no such file, or it says "max"
        return min(total, int(CGROUP.read_text("ascii")))
    return total


def _describe(size: int, times: int, most: int, device: torch.device) -> str:
    what = "to train (weights, gradients, Adam's moments)" if times == TRAINED else "for its weights"
    place = "the GPU" if device.type == "cuda" else "this machine"
    return (
        f"model: it needs more than {size / 2**30:.1f} GiB {what}, and {place} has {most / 2**30:.1f} GiB; "
        "allowed: fewer layers, smaller widths or vocabularies"
    )
