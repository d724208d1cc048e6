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
from typing import Any, TypeVar, cast, final

import torch
from torch import Tensor, distributed

from saccade.errors import UserError

T = TypeVar("T")
PATIENCE = dt.timedelta(hours=12)  # the others wait while the first validates
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
        """What the first process finds, told to all; so is what stopped it, and all of them stop."""
        if self.size == 1:
            return work()
        found: list[Any] = [None, None]
        if self.is_first:
            try:
                found[0] = work()
            except (KeyboardInterrupt, UserError) as stop:
                found[1] = stop
        distributed.broadcast_object_list(found, src=0)
        if found[1] is not None:
            raise found[1]
        return cast(T, found[0])

    def first(self, work: Callable[[], T]) -> T:
        """Work that leaves files which the others then find: the first process does it before them."""
        found: list[T] = []
        self.told(lambda: found.append(work()))
        result = found[0] if found else work()
        self.wait()
        return result

    def wait(self) -> None:
        """Until everybody is here."""
        if self.size > 1:
            distributed.barrier()


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
