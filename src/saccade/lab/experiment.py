"""Experiments of the lab: a question, a claim with its source, a prediction, measurements and a verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

Points = Sequence[tuple[float, float]]
Lines = Mapping[str, Points]  # a curve for each thing that is compared


class Panel(NamedTuple):
    """One picture: what its axes are, and whether they are logarithmic."""

    title: str
    across: str
    up: str
    log_across: bool = False
    log_up: bool = False


class Measurements(NamedTuple):
    """Measurements of one seed: the curves of each panel, and the numbers that the verdict is about, by name."""

    panels: Mapping[str, Lines]
    numbers: Mapping[str, float]


class Check(NamedTuple):
    """A number that the claim bounds, and the part of the claim that it stands for."""

    number: str
    says: str
    least: float = -math.inf
    most: float = math.inf


class Finding(NamedTuple):
    """The values of a check, one for each seed, and whether all of them are within its bounds."""

    check: Check
    values: list[float]

    @property
    def is_met(self) -> bool:
        return all(self.check.least <= value <= self.check.most for value in self.values)

    def plain(self) -> dict[str, Any]:
        low, high = min(self.values), max(self.values)
        found = {"mean": statistics.mean(self.values), "lowest": low, "highest": high, "values": self.values}
        bounds = {
            name: value
            for name, value in (("least", self.check.least), ("most", self.check.most))
            if math.isfinite(value)
        }
        return {"number": self.check.number, "says": self.check.says, **bounds, **found, "met": self.is_met}


RULE = (
    "Each check bounds one number. A check is met if the number is within its bounds for every seed. "
    "The claim holds if all checks are met, holds in part if some are, and is not found here if none is."
)


@final
@dataclass(frozen=True)
class Experiment:
    """One claim of the lectures, to be tried; `measure` takes a seed, and whether the full size is wanted."""

    name: str
    question: str
    claim: str
    source: str
    setup: str
    prediction: str
    checks: Sequence[Check]
    panels: Mapping[str, Panel]
    measure: Callable[[int, bool], Measurements]
    minutes: str  # of its seeds, on two CPU cores
    seeds: int = 5  # where nobody asks for another number

    def judge(self, measured: Sequence[Measurements]) -> tuple[str, list[Finding]]:
        """Return the verdict, by `RULE`, and the finding of each check."""
        findings = [Finding(check, [one.numbers[check.number] for one in measured]) for check in self.checks]
        num_met = sum(finding.is_met for finding in findings)
        if num_met == len(findings):
            return "holds", findings
        return ("holds in part" if num_met else "not found here"), findings


def slope(points: Points) -> float:
    """Return the slope of the straight line that fits points best (least squares)."""
    x, y = zip(*points, strict=True)
    return float(statistics.linear_regression(x, y).slope)
