"""Attacks of one client on the others: each kind keeps a server as busy as its limits allow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple

from saccade.bench.serving.http_client import Connection, RunningServer
from saccade.serving.models import LanguagePair

ADDRESS = "127.0.0.2"  # of the attacker
LOOK, V1, LIBRE = "/v1/look", "/v1/translate", "/translate"
PAUSE = 0.01  # seconds after a connection that was refused
STARTUP = 60.0  # seconds
PATIENCE = 35.0  # seconds; servers cut off after 30 who does not read
SMALL_WINDOW = 4096  # bytes


class Attack(NamedTuple):
    """A request that is sent over so many connections, again and again.

    What a client does then: `ask` reads the answer, `leave` closes at once, `ignore` never reads it; `hold` does not
    send the last byte.
    """

    path: str
    body: bytes
    num_connections: int
    way: str = "ask"


def attacks(pair: LanguagePair) -> Mapping[str, Attack]:
    """Return the attacks on a translator between two languages."""
    rare = "".join(chr(0x4E00 + number) for number in range(80))
    weights = {"text": rare, "target": rare, "kinds": ["cross", "encoder", "decoder"]}
    words = "The old woman and the young man see a small black dog near the red house. "

    def libre(**fields: Any) -> bytes:
        return json.dumps({**pair._asdict(), **fields}).encode()

    one = libre(q="The cat.")
    return {
        "numbers": Attack(V1, b'{"q":[' + b"0," * 190_000 + b"0]}", 4),
        "fields": Attack(LOOK, json.dumps({f"f{number}": 0 for number in range(500_000)}).encode(), 4),
        "nesting": Attack(V1, b'{"q":' + b"[" * 380_000, 4),
        "letters": Attack(LIBRE, libre(q="qzxj" * 5000), 16),
        "beam": Attack(LIBRE, libre(q="qzxj" * 312, alternatives=15), 16),
        "emoji": Attack(LIBRE, libre(q="\N{GRINNING FACE}" * 20_000), 16),
        "sentences": Attack(LIBRE, libre(q="The cat sleeps. " * 1250), 16),
        "points": Attack(LIBRE, libre(q="a. " * 6666), 4),
        "comments": Attack(LIBRE, libre(q="<!--" * 5000, format="html"), 4),
        "tags": Attack(LIBRE, libre(q="<b>a</b> " * 2222, format="html"), 4),
        "tables": Attack(LIBRE, libre(q="<table>x<tr><td><b>y" * 1000, format="html"), 4),
        "languages": Attack("/detect", libre(q=words * 260), 16),
        "flow": Attack(LOOK, json.dumps({"text": words * 2, "views": ["flow"]}).encode(), 16),
        "weights": Attack(LOOK, json.dumps(weights).encode(), 8),
        "unread": Attack(LOOK, json.dumps(weights).encode(), 200, "ignore"),
        "leaving": Attack(LIBRE, one, 16, "leave"),
        "flood": Attack(LIBRE, one, 1000),
        "slow heads": Attack(LIBRE, b"", 1500, "hold"),
        "slow bodies": Attack(LIBRE, one, 1500, "hold"),
        "large bodies": Attack(LOOK, b" " * (8 << 20), 64, "hold"),
    }


@contextmanager
def run_attack(where: RunningServer, attack: Attack) -> Iterator[None]:
    """Attack a server from another process and address until the block ends."""
    context = get_context("spawn")
    begun, over = context.Event(), context.Event()
    process = context.Process(target=_run, args=(where.host, where.port, attack, begun, over), daemon=True)
    process.start()
    try:
        begun.wait(STARTUP)
        yield
    finally:
        over.set()
        process.join(5)
        process.kill()


def _run(host: str, port: int, attack: Attack, begun: Event, over: Event) -> None:
    if hasattr(os, "nice"):  # not on Windows
        os.nice(10)  # an attacker's work is not done on the server's machine
    threading.Thread(target=lambda: (over.wait(), os._exit(0)), daemon=True).start()
    asyncio.run(_attack(host, port, attack, begun))


async def _attack(host: str, port: int, attack: Attack, begun: Event) -> None:
    begun.set()
    await asyncio.gather(*(_repeat(host, port, attack) for _ in range(attack.num_connections)))


async def _repeat(host: str, port: int, attack: Attack) -> None:
    window = SMALL_WINDOW if attack.way == "ignore" else None
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, StopIteration):
            connection = await Connection.open(host, port, address=ADDRESS, window=window)
            try:
                await WAYS[attack.way](connection, attack)
            finally:
                connection.close()
        await asyncio.sleep(PAUSE)


async def _ask(connection: Connection, attack: Attack) -> None:
    while True:
        await connection.post(attack.path, attack.body)


async def _leave(connection: Connection, attack: Attack) -> None:
    await connection.send(attack.path, attack.body)


async def _ignore(connection: Connection, attack: Attack) -> None:
    await connection.send(attack.path, attack.body)
    await asyncio.sleep(PATIENCE)


async def _hold(connection: Connection, attack: Attack) -> None:
    await connection.send(attack.path, attack.body, leave_out=1)
    await connection.read_to_end()


WAYS = {"ask": _ask, "leave": _leave, "ignore": _ignore, "hold": _hold}
