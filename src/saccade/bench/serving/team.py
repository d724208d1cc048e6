"""The processes of a server under load: their memory together, and what becomes of requests when one is killed."""

from __future__ import annotations

import asyncio
import re
from urllib.request import urlopen

import psutil

from saccade.bench.serving.http_client import RunningServer

COUNTED = re.compile(r'^saccade_(requests_lost|processes_lost)_total(?:\{how="(\w+)"\})? (\S+)$', re.MULTILINE)
PATIENCE = 30.0  # seconds until a process that was killed is replaced


def measure_memory(where: RunningServer) -> float:
    """Return the server's memory in MiB; pages that its processes share are counted once."""
    first = psutil.Process(where.process.pid)
    own, others = first.memory_info().rss, first.children(recursive=True)
    return (sum(map(_proportional, [first, *others])) if others else own) / 2**20


def _proportional(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
    except psutil.Error:  # it has just ended
        return 0
    return int(getattr(full, "pss", full.rss))  # only Linux divides shared pages among who shares them


def list_serving(where: RunningServer) -> list[psutil.Process]:
    """List the processes that answer: a child of the first one has forked them. Their children do slow work."""
    return [one for child in psutil.Process(where.process.pid).children() for one in child.children()]


async def kill_one(where: RunningServer, delay: float) -> None:
    """Kill one of the processes that answer after so many seconds, and wait until another is in its place."""
    await asyncio.sleep(delay)
    before = list_serving(where)
    before[0].kill()
    async with asyncio.timeout(PATIENCE):
        while before[0] in (now := list_serving(where)) or len(now) < len(before):
            await asyncio.sleep(0.1)


def read_losses(where: RunningServer) -> dict[str, int]:
    """Return what the server has counted: processes that were lost, and their requests by what became of them."""
    with urlopen(f"http://{where.host}:{where.port}/metrics") as answer:
        text = answer.read().decode()
    return {how or name.partition("_")[0]: int(float(number)) for name, how, number in COUNTED.findall(text)}
