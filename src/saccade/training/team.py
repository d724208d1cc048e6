"""Several processes that train one model (`torchrun`): each takes some batches of a step; gradients are summed.

A step's batches are counted the same way however many processes there are, and all chance is a function of the step
and a batch's place in it. So the loss curve is that of one process, and a run goes on with another number of them.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, final

import torch
from torch import Tensor, distributed, nn

T = TypeVar("T")
PATIENCE = dt.timedelta(hours=12)  # the others wait while the first validates
BUCKET = 1 << 24  # gradients that are summed at once
CPU = torch.device("cpu")


@final
@dataclass(frozen=True)
class Team:
    """This process among its like; `rank` 0 prepares, validates, writes and speaks for all."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for all."""
        return self.rank == 0

    def share(self, rows: Sequence[T]) -> list[tuple[int, T]]:
        """The rows of a step that are this process's, with their places."""
        return [*enumerate(rows)][self.rank :: self.size]

    def total(self, *numbers: float) -> list[float]:
        """The sums of everybody's numbers."""
        if self.size == 1:
            return list(numbers)
        summed = torch.tensor(numbers, dtype=torch.float64)
        distributed.all_reduce(summed)
        return summed.tolist()

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum of everybody's tensor; the device is not waited for."""
        if self.size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def told(self, work: Callable[[], T]) -> T:
        """What the first process finds, told to all."""
        if self.size == 1:
            return work()
        found: list[Any] = [work() if self.is_first else None]
        distributed.broadcast_object_list(found, src=0)
        return found[0]

    def first(self, work: Callable[[], T]) -> T:
        """Work that leaves files which the others then find: the first process does it before them."""
        found = work() if self.is_first else None
        self.wait()
        if found is None:
            found = work()
        self.wait()
        return found

    def wait(self) -> None:
        """Until everybody is here."""
        if self.size > 1:
            distributed.barrier()

    def sum_gradients(self, model: nn.Module) -> None:
        """Everybody's gradients, where this process's were; buffers that training moves become their mean."""
        if self.size == 1:
            return
        for parameter in model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        _sum([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
        moved = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        _sum(moved)
        for buffer in moved:
            buffer.div_(self.size)


ALONE = Team()


@contextmanager
def joined() -> Iterator[Team]:
    """The team that `torchrun` started this process in; without it, alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    place = int(os.environ.get("LOCAL_RANK", "0"))
    has_cuda = torch.cuda.is_available()
    if has_cuda:
        torch.cuda.set_device(place)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if has_cuda else "gloo", timeout=PATIENCE)
    try:
        yield Team(distributed.get_rank(), size, torch.device("cuda", place) if has_cuda else CPU)
    finally:
        distributed.destroy_process_group()


def _sum(tensors: Sequence[Tensor]) -> None:
    """Summed over all processes, in place, many small ones at once."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        bucket.append(tensor)
        if sum(one.numel() for one in bucket) >= BUCKET:
            _sum_together(bucket)
            bucket = []
    if bucket:
        _sum_together(bucket)


def _sum_together(tensors: list[Tensor]) -> None:
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    distributed.all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
