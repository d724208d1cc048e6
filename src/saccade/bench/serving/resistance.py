"""A benchmark of well-behaved clients while another one attacks their server."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from saccade.bench.choices import parse_names
from saccade.bench.serving.attacks import attacks, run_attack
from saccade.bench.serving.http_client import start_server
from saccade.bench.serving.load import FINE, Clients, LoadCounts, LoadPlan, Say, make_deadline, right_answers

MOST_TIMES = 5.0  # as long as without the attack
WARM_SECONDS = 3.0
REST_SECONDS = 3.0  # after an attack


class AttackRow(NamedTuple):
    """Measurements of clients just before an attack, and during it."""

    name: str
    quiet: LoadCounts
    attacked: LoadCounts

    @property
    def times(self) -> float:
        """Divide the slowest hundredth's time during the attack by that before."""
        return self.attacked.percentile(0.99) / self.quiet.percentile(0.99)

    @property
    def num_not_right(self) -> int:
        found = self.attacked.as_dict()
        return sum(int(found[key]) for key in ("refused", "errors", "lost", "swapped", "wrong"))

    @property
    def is_bad(self) -> bool:
        return self.times > MOST_TIMES or self.num_not_right > 0

    def as_dict(self) -> dict[str, Any]:
        found = {"attack": self.name, "times": self.times, "bad": self.is_bad}
        return found | {"quiet": self.quiet.as_dict(), "attacked": self.attacked.as_dict()}


def run(plan: LoadPlan, names: str | None, say: Say) -> list[AttackRow]:
    """Attack a server in each of these ways, or in all; for `plan.alone_seconds` before each there is no attack."""
    right, pair = right_answers(plan, say)
    known = attacks(pair)
    chosen, rows = parse_names("kinds", names, known), list[AttackRow]()
    with (
        tempfile.TemporaryDirectory() as folder,
        start_server(*plan.arguments, log=Path(folder) / "log") as where,
    ):
        clients = Clients(where, right, pair, are_apart=True)
        asyncio.run(clients.run(plan.clients, until=make_deadline(WARM_SECONDS)))
        for name in chosen:
            quiet = asyncio.run(clients.run(plan.clients, until=make_deadline(plan.alone_seconds), pause=plan.pause))
            with run_attack(where, known[name]):
                attacked = asyncio.run(clients.run(plan.clients, until=make_deadline(plan.seconds), pause=plan.pause))
            rows.append(AttackRow(name, quiet, attacked))
            found = f"{attacked.statuses[FINE]:,} answers, {rows[-1].num_not_right} not right"
            say(f"{name}: p99 {quiet.percentile(0.99):.3f} s, then {attacked.percentile(0.99):.3f} s; {found}")
            asyncio.run(clients.run(plan.clients, until=make_deadline(REST_SECONDS), pause=plan.pause))
    return rows
