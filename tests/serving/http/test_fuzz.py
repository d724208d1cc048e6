"""Requests that no client would send: no 500, no hang, and the next one is answered."""

from __future__ import annotations

import asyncio
import subprocess
from typing import cast

from saccade.bench.serving.fuzzing import FIELDS, fuzz, generate_requests
from saccade.bench.serving.http_client import RunningServer
from servers import Serving


def test_a_seed_is_always_the_same_and_reaches_every_route() -> None:
    found = list(generate_requests(300))
    assert found == list(generate_requests(300))
    assert found != list(generate_requests(300, seed=2))
    assert {one.path.partition("?")[0] for one in found} == set(FIELDS)


def test_nothing_that_is_sent_does_harm(all_served: Serving) -> None:
    where = RunningServer("127.0.0.1", all_served.port, cast(subprocess.Popen[bytes], None))
    found = asyncio.run(fuzz(where, 500))
    assert found.bad == []
    assert found.statuses.total() == 500
    assert {200, 400} <= set(found.statuses)
    assert all_served.post("/translate", q="a", source="en", target="fr").status_code == 200
