"""Several processes that train one model (`torchrun`): each takes some batches of a step; gradients are summed.

A step's batches are counted the same way with any number of processes, and all randomness is a function of the step and
a batch's place in it. So the loss curve is that of one process, and a run can go on with another number of processes.
"""

from __future__ import annotations

import datetime as dt
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast, final

import torch
from torch import Tensor, distributed

from saccade.errors import LostProcess, UserError

T = TypeVar("T")
PATIENCE = dt.timedelta(hours=12)  # the others wait while the first validates
CPU = torch.device("cpu")


@final
@dataclass(frozen=True)
class Team:
    """This process among the others; `rank` 0 prepares, validates, writes files and prints."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def is_first(self) -> bool:
        """Return True if this process writes files and prints for all."""
        return self.rank == 0

    def share(self, rows: Sequence[T]) -> list[tuple[int, T]]:
        """Return this process's rows of a step, with their places."""
        return [*enumerate(rows)][self.rank :: self.size]

    def sum_numbers(self, *numbers: float) -> list[float]:
        """Return the sums of the numbers of all processes."""
        if self.size == 1:
            return list(numbers)
        summed = torch.tensor(numbers, dtype=torch.float64)
        distributed.all_reduce(summed)
        return summed.tolist()

    def sum_tensor(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, without waiting for the device."""
        if self.size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def broadcast(self, work: Callable[[], T]) -> T:
        """Do work in the first process and return its result in all; an error that stops it stops all of them."""
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

    def run_first(self, work: Callable[[], T]) -> T:
        """Do work that leaves files first in the first process, then in the others, which find them."""
        found: list[T] = []
        self.broadcast(lambda: found.append(work()))
        result = found[0] if found else work()
        self.wait()
        return result

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            distributed.barrier()


ALONE = Team()


@contextmanager
def join_team() -> Iterator[Team]:
    """Join the team that `torchrun` started this process in; without `torchrun` the process is alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    place = int(os.environ.get("LOCAL_RANK", "0"))
    has_cuda = torch.cuda.is_available()
    if has_cuda:
        torch.cuda.set_device(place)
    try:
        _meet("cpu:gloo,cuda:nccl" if has_cuda else "gloo")
        yield Team(distributed.get_rank(), size, torch.device("cuda", place) if has_cuda else CPU)
    except RuntimeError as error:
        if isinstance(error, distributed.DistError) or "gloo" in str(error):
            what = "another process of this training has ended; the same command goes on at the last checkpoint"
            raise LostProcess(f"{what} (torchrun --max-restarts does so by itself)") from error
        raise
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _meet(backends: str) -> None:
    """Find the other processes through torchrun's store, which still has the addresses of those before a restart."""
    store, rank, size = next(distributed.rendezvous("env://", timeout=PATIENCE))  # type: ignore[attr-defined]
    own = distributed.PrefixStore(name_meeting(store, rank, size), store)  # type: ignore[attr-defined]
    distributed.init_process_group(backends, store=own, rank=rank, world_size=size, timeout=PATIENCE)


def name_meeting(store: Any, rank: int, size: int) -> str:
    """Agree with the other processes on a name that no meeting before had, whatever the store has kept of these.

    The first process makes it up. Each of the others asks for it under a new name of its own, and says when it knows;
    until then whatever is asked is answered, also what those before a restart have asked.
    """
    own = uuid.uuid4().hex
    if rank > 0:
        store.set(f"asked by {rank}", own)
        name = str(store.get(f"answer to {own}").decode())
        store.set(f"{name} known by {rank}", "")
        return name
    asking = set(range(1, size))
    while asking:
        for other in sorted(asking):
            if store.check([f"asked by {other}"]):
                store.set(f"answer to {store.get(f'asked by {other}').decode()}", own)
        asking = {other for other in asking if not store.check([f"{own} known by {other}"])}
        time.sleep(0.02)
    return own
