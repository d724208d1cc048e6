"""Goals of additive attention on one H200, compared with the results of `saccade bench additive`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from saccade.bench.attention.additive import AdditiveRow, ratio


@final
@dataclass(frozen=True)
class Goal:
    """A bound on one figure, and the figure that was measured."""

    name: str
    least: float | None
    most: float | None
    found: float | None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "is_met": self.is_met}

    @property
    def is_met(self) -> bool:
        """Return whether the figure is within its bounds; a missing figure is not."""
        found = self.found
        return found is not None and (self.least is None or found >= self.least) and found <= (self.most or found)


def check_goals(rows: Sequence[AdditiveRow], *, at_full_size: bool) -> list[Goal]:
    """Compare rows with the goals; speed and memory have goals only for the full shapes on one H200."""
    found = []
    for kind in ("output", "gradients"):
        ours = [row for row in rows if row.name in ("exact", "attend") and row.dtype == "float32"]
        ratios = [row.error_ratio(rows, gradients=kind == "gradients") for row in ours]
        found.append(Goal(f"{kind}: RMS error over plain float32's", None, 2, max(filter(None, ratios), default=None)))
    return [*_goals_of_speed(rows), *found] if at_full_size else found


def _goals_of_speed(rows: Sequence[AdditiveRow]) -> list[Goal]:
    found, rates = [], {(row.case, row.backward): (row.rate or 0) / 1e12 for row in rows if row.name == "exact"}
    for name, least in (("large", 7.0), ("small", 3.5)):
        found.append(Goal(f"{name}, forward, exact: T terms/s", least, None, rates.get((name, False))))
    for row in rows:
        if row.name == "exact" and row.case in ("large", "small") and row.backward:
            for peer, least in (("compile", 5.0), ("eager", 15.0)):
                found.append(Goal(f"{row.case}, both passes: times {peer}", least, None, ratio(rows, row, peer)))
    fine = [row.rate / 1e12 for row in rows if row.name == "series" and row.rate and row.largest_error <= 1e-3]
    found.append(Goal("series, error <= 1e-3: T terms/s", 12, None, max(fine, default=None)))
    peaks = [row.peak_bytes / 2**30 for row in rows if row.case == "long" and row.peak_bytes is not None]
    found.append(Goal("long, both passes: GiB", None, 2, max(peaks, default=None)))
    for row in (row for row in rows if row.name == "attend" and not row.backward):
        theirs = next((r for r in rows if (r.name, r.shape, r.backward) == ("eager step", row.shape, False)), None)
        if theirs is None:
            continue
        times = {"called": (theirs.call_seconds, row.call_seconds), "captured": (theirs.seconds, row.seconds)}
        for how, (slow, quick) in times.items():
            gain = slow / quick if slow and quick else None
            found.append(Goal(f"one query, {row.shape}, {how}: times eager", 3, None, gain))
    return found
