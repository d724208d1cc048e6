"""Many files on many machines, some slow and some that fail: how much longer than their fair share it takes."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.lab.experiment import Check, Experiment, Measurements, Panel

MACHINES, FULL_MACHINES = 64, 1024
HOURS = 10.0  # of work for each machine, if all are alike
FILES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # for each machine
SPREAD = 0.3  # of the work in a file: the standard deviation of its logarithm
SLOW_SHARE, SLOWNESS = 0.05, 3.0  # of the machines, as where neighbours take their cores
FAILURES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)  # of a machine in an hour
USUAL_FAILURES, RESTART = 0.02, 0.05  # hours until another process has loaded the model
TRIALS = 5


class Cluster(NamedTuple):
    """The speed of each machine, and the failures of one in an hour."""

    speed_N: NDArray[np.float64]
    failures: float


def measure(seed: int, is_full: bool) -> Measurements:
    """Measure the time over the ideal one, by the number of files and by the number of failures."""
    machines = FULL_MACHINES if is_full else MACHINES
    handed, given = list[tuple[float, float]](), list[tuple[float, float]]()
    for files in FILES:
        both = [_overheads(machines, files, USUAL_FAILURES, random) for random in _trials(seed, files)]
        handed.append((files, statistics.mean(one for one, _ in both)))
        given.append((files, statistics.mean(other for _, other in both)))
    failing = list[tuple[float, float]]()
    expected = list[tuple[float, float]]()
    for rate in FAILURES:
        found = [_overheads(machines, 64, rate, random, slow=0.0)[0] for random in _trials(seed, 64)]
        failing.append((rate, statistics.mean(found)))
        expected.append((rate, failing[0][1] * (1 + rate * (HOURS / 64 / 2 + RESTART))))
    lost, wanted = (lines[-1][1] / failing[0][1] - 1 for lines in (failing, expected))
    numbers = {
        "one": dict(handed)[1],
        "many": dict(handed)[64],
        "given": dict(given)[64],
        "failing": lost / wanted,
    }
    files_lines = {"one file after the other": handed, "a share for each": given}
    return Measurements({"files": files_lines, "failures": {"simulated": failing, "by hand": expected}}, numbers)


def _trials(seed: int, files: int) -> Iterator[np.random.Generator]:
    return (np.random.default_rng([seed, files, trial]) for trial in range(TRIALS))


def _overheads(
    machines: int, files: int, failures: float, random: np.random.Generator, slow: float = SLOW_SHARE
) -> tuple[float, float]:
    """Return the time over that of equal machines without failures: handed out one by one, and by shares."""
    work = np.exp(random.normal(0, SPREAD, machines * files))
    work *= HOURS * machines / work.sum()
    speed_N = np.ones(machines)
    speed_N[: round(slow * machines)] = 1 / SLOWNESS
    cluster = Cluster(random.permutation(speed_N), failures)
    ideal = work.sum() / cluster.speed_N.sum()
    queue = _finish([[float(one) for one in work]], cluster, random)
    shares = _finish([part.tolist() for part in np.array_split(work, machines)], cluster, random)
    return queue / ideal, shares / ideal


def _finish(queues: list[list[float]], cluster: Cluster, random: np.random.Generator) -> float:
    """Return when the last file is done, if each machine takes the next one of the only queue, or of its own."""
    waiting = [queue[::-1] for queue in queues]
    free = [(0.0, machine) for machine in range(len(cluster.speed_N))]
    heapq.heapify(free)
    end = 0.0
    while free:
        now, machine = heapq.heappop(free)
        own = waiting[machine % len(waiting)]
        if not own:
            continue
        now += _answer(own.pop() / cluster.speed_N[machine], cluster.failures, random)
        end = max(end, now)
        heapq.heappush(free, (now, machine))
    return end


def _answer(hours: float, failures: float, random: np.random.Generator) -> float:
    """Return the hours that a file takes on a machine: a failure costs what was done of it, and a restart."""
    spent = 0.0
    while failures and (until := random.exponential(1 / failures)) < hours:
        spent += until + RESTART
    return spent + hours


STRAGGLERS = Experiment(
    name="stragglers",
    question="How much longer than its share does a bulk job take, when machines are slow or fail?",
    claim="If every machine takes the next file when it is free, slow machines and failures cost a few percent, once "
    "each machine has some dozens of files. If every machine is given its share beforehand, the slowest one decides.",
    source="Graham 1969 (list scheduling: at most the longest file more than the ideal); docs/scale.md",
    setup=f"A simulation: {MACHINES} machines (--full: {FULL_MACHINES}) with {HOURS:g} hours of work each; files whose "
    f"work varies (log-normal, {SPREAD}); {SLOW_SHARE:.0%} of the machines are {SLOWNESS:g} times slower; each fails "
    f"{USUAL_FAILURES} times an hour, which costs what was done of its file and {60 * RESTART:g} minutes. Times are "
    f"over the ideal one, at which all machines are busy to the end; means of {TRIALS} draws.",
    prediction="With one file for each machine the slow ones make it three times as long; with 64 files it is within "
    "8% of the ideal. Shares given beforehand take nearly three times as long whatever the number of files. A failure "
    "costs half a file and a restart, and now and then a wait for the last file.",
    checks=(
        Check("one", "with one file for each machine the time over the ideal is", least=2.5),
        Check("many", "with 64 files for each", most=1.08),
        Check("given", "with 64 files for each, given beforehand", least=2.3),
        Check("failing", "failures cost about what is expected by hand, as a ratio", least=0.8, most=2.0),
    ),
    panels={
        "files": Panel("Time over the ideal", "files for each machine", "ratio", log_across=True),
        "failures": Panel("Time over the ideal, equal machines, 64 files", "failures an hour", "ratio"),
    },
    measure=measure,
    minutes="a quarter of a minute",
)
