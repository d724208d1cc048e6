"""Bulk work on Ray: processes that load the model once and take one shard after the other; a lost one is replaced."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from saccade.bulk.shards import Shard
from saccade.bulk.work import Work, WrittenShard, answer_shard
from saccade.errors import UserError, describe_missing

MOST_LOSSES = 3  # of processes that were at the same shard
STORE_BYTES = 80 << 20  # Ray's least: only names and counts travel


def run_on_ray(
    work: Work, shards: Sequence[Shard], *, address: str | None, workers: int | None, threads: int, wants_gpu: bool
) -> Iterator[WrittenShard]:
    """Do the work on a Ray cluster, or on a Ray of this machine; shards may end in any order."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers
    if _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` does by itself: who joins must show it
    try:
        ray: Any = import_module("ray")
        lost = import_module("ray.exceptions").RayActorError
    except ModuleNotFoundError as error:
        raise UserError(describe_missing("--on ray", error, "ray")) from None
    _join(ray, address)
    try:
        has_gpu = wants_gpu and ray.cluster_resources().get("GPU", 0) >= 1
        needs: dict[str, Any] = {"num_cpus": threads, "num_gpus": int(has_gpu)}
        number = min(len(shards), workers or _count_workers(ray.cluster_resources(), needs))
        remote = ray.remote(**needs)(_Actor)  # not begun again by Ray: until it is, all that it is asked fails at once
        idle, busy = [remote.remote(work) for _ in range(number)], dict[Any, tuple[Any, Shard]]()
        waiting, losses = deque(shards), Counter[str]()
        while waiting or busy:
            while idle and waiting:
                actor, shard = idle.pop(), waiting.popleft()
                busy[actor.answer.remote(shard)] = actor, shard
            (ready,), _ = ray.wait(list(busy), num_returns=1)
            actor, shard = busy.pop(ready)
            try:
                found = ray.get(ready)
            except lost as error:
                ray.kill(actor)  # it may be alive, but out of reach
                idle.append(remote.remote(work))
                losses[shard.name] += 1
                if losses[shard.name] >= MOST_LOSSES:
                    said = f"{shard.name}: {MOST_LOSSES} processes ended while they answered it"
                    raise UserError(f"{said}; is there enough memory? ({str(error).splitlines()[0]})") from None
                waiting.appendleft(shard)
                continue
            idle.append(actor)
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        ray.shutdown()


class _Actor:
    """A process with a loaded model."""

    def __init__(self, work: Work) -> None:
        self.answer_lines = work.start()

    def answer(self, shard: Shard) -> WrittenShard | Exception:
        """Answer a shard; what the user can mend is returned, as Ray would wrap it."""
        try:
            return answer_shard(self.answer_lines, shard)
        except UserError as error:
            return error
        except OSError as error:
            return OSError(error.errno, error.strerror, error.filename)


def _has_token() -> bool:
    """Return True if there is a token that a cluster may ask for."""
    kept = os.environ.get("RAY_AUTH_TOKEN_PATH", Path.home() / ".ray" / "auth_token")
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or Path(kept).is_file()


def _join(ray: Any, address: str | None) -> None:
    """Join a cluster; without an address that of RAY_ADDRESS, or a new one on this machine."""
    here: dict[str, Any] = {"include_dashboard": False, "object_store_memory": STORE_BYTES}
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="ERROR",
            **({} if address or os.environ.get("RAY_ADDRESS") else here),
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = address or "ray"
        raise UserError(f"--on: {where}: {str(error).splitlines()[0]}") from None


def _count_workers(resources: dict[str, float], needs: dict[str, int]) -> int:
    """Return how many processes with these needs have room."""
    room = [
        int(resources.get(name, 0)) // needs[key]
        for key, name in (("num_cpus", "CPU"), ("num_gpus", "GPU"))
        if needs[key]
    ]
    return max(1, min(room))
