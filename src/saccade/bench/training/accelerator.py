"""`saccade bench train --device cuda`: we and the peers train on the same sentences, one after another in one process.

We run the loop of `saccade train`, with loading, clipping and bookkeeping. The peers find their batches on the device
and neither clip nor log: forward, backward, fused AdamW. The figure is the number of real target tokens a second.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import torch

from saccade.bench.training import flops, trainers
from saccade.bench.training.sentences import TrainingText
from saccade.bench.training.trainers import PEERS, TrainJob
from saccade.data.store import Store
from saccade.errors import UserError

Say = Callable[[str], None]
OURS = "saccade"


@final
@dataclass(frozen=True)
class AcceleratorRow:
    """The figures of one contestant on one training text, or the reason why it has none."""

    name: str
    title: str
    work: str
    steps: int
    rate: float | None = None  # real target tokens a second
    share: float | None = None  # of the matrix ceiling
    step_seconds: float | None = None
    setup_seconds: float | None = None
    real_share: float | None = None
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    problem: str | None = None
    axis: str | None = None  # of growth
    point: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@final
@dataclass(frozen=True)
class AcceleratorReport:
    """All rows, and the device's ceiling (operations a second) that they are compared with."""

    ceiling: float
    rows: list[AcceleratorRow]

    def tables(self) -> dict[str, list[AcceleratorRow]]:
        """Group the rows by training text or point of growth, one group for each table."""
        found: dict[str, list[AcceleratorRow]] = {}
        for row in self.rows:
            name = row.work if row.axis is None else f"growth with {row.axis}: {row.point:,g}"
            found.setdefault(name, []).append(row)
        return found

    def ratios(self) -> dict[str, float]:
        """Divide our rate by that of the best peer, wherever both have one."""
        found = {}
        for name, rows in self.tables().items():
            rates = {row.name: row.rate for row in rows if row.rate is not None}
            peers = [rate for peer, rate in rates.items() if peer != OURS]
            if OURS in rates and peers:
                found[name] = rates[OURS] / max(peers)
        return found


def run(job: TrainJob, say: Say, *, growth: bool = False) -> AcceleratorReport:
    """Train all contestants on every text; `growth` varies batch, length, width and vocabulary. Ctrl-C ends it."""
    report = AcceleratorReport(flops.measure_ceiling(job.device), [])
    with contextlib.suppress(KeyboardInterrupt):  # what is found is shown
        for row in _all_rows(job, report.ceiling, say, growth=growth):
            report.rows.append(row)
    return report


def _all_rows(job: TrainJob, ceiling: float, say: Say, *, growth: bool) -> Iterator[AcceleratorRow]:
    for work in job.works():
        yield from _measure_all(job, work, ceiling, say)
    for axis, point, other in vary_job(job) if growth else ():
        say_point = functools.partial(_say_point, say, f"{axis} {point:g}")
        for row in _measure_all(other, other.draw_text(), ceiling, say_point):
            yield replace(row, axis=axis, point=point)


def _say_point(say: Say, point: str, text: str) -> None:
    say(f"{point}: {text}")


def vary_job(job: TrainJob) -> Iterator[tuple[str, float, TrainJob]]:
    """Yield smaller and larger variants of a job: the axis, the value on it, and the job."""
    sizes = job.sizes
    if sizes.is_recurrent:
        raise UserError("--growth: given, but it goes with --size base or big")
    for factor in (0.25, 0.5, 1, 2):
        tokens = int(job.tokens * factor)
        yield "batch", tokens, replace(job, tokens=tokens)
    for factor in (0.5, 1, 2, 4):
        mean = job.mean_length * factor
        yield "length", mean, replace(job, mean_length=mean, data=None)
    for factor in (0.5, 1, 2):
        width, hidden, heads = (int(size * factor) for size in (sizes.width, sizes.hidden_width, sizes.num_heads))
        wider = sizes._replace(width=width, hidden_width=hidden, num_heads=max(1, heads))
        yield "width", width, replace(job, sizes=wider)
    for factor in (0.25, 0.5, 1, 2):
        vocabulary = int(sizes.vocabulary * factor)
        yield "vocabulary", vocabulary, replace(job, sizes=sizes._replace(vocabulary=vocabulary))


def _measure_all(job: TrainJob, work: TrainingText, ceiling: float, say: Say) -> Iterator[AcceleratorRow]:
    per_token = flops.count_operations(job.sizes, work) / float(work.target_N.sum())
    with tempfile.TemporaryDirectory(prefix="saccade-bench-") as folder:
        store = work.store(Path(folder), job.sizes.vocabulary)
        for name in (OURS, *job.peers):
            title = OURS if name == OURS else PEERS[name].title
            say(f"{work.name}: {title}")
            row = _measure(AcceleratorRow(name, title, work.name, job.steps), job, work, store)
            yield row if row.rate is None else replace(row, share=row.rate * per_token / ceiling)


def _measure(row: AcceleratorRow, job: TrainJob, work: TrainingText, store: Store) -> AcceleratorRow:
    """Train one contestant and fill in its row; an error becomes the row's `problem`, and the others go on."""
    before = _free_memory(job.device)
    torch.manual_seed(1)
    try:
        trained = (
            trainers.measure_ours(job, work, store)
            if row.name == OURS
            else trainers.measure_peer(PEERS[row.name], job, work, store)
        )
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return replace(row, problem=f"{type(error).__name__}: {lines[0]}")
    return replace(
        row,
        rate=trained.tokens / trained.seconds,
        step_seconds=trained.seconds / job.steps,
        setup_seconds=trained.setup_seconds,
        real_share=trained.real_share,
        peak_bytes=None if before is None else torch.cuda.max_memory_allocated(job.device) - before,
        reserved_bytes=None if before is None else torch.cuda.max_memory_reserved(job.device),
    )


def _free_memory(device: torch.device) -> int | None:
    """Free all that the last contestant left; return the bytes that are still allocated on an accelerator."""
    torch.compiler.reset()
    gc.collect()
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def choose_model_peers(names: str | None, *, is_recurrent: bool) -> tuple[str, ...]:
    """Parse a list of peers: names with commas, or none; without a list, return all that train such a model."""
    fitting = [name for name, peer in PEERS.items() if peer.is_recurrent == is_recurrent]
    if names is None:
        return tuple(fitting)
    asked = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if unknown := [name for name in asked if name not in fitting and asked != ("none",)]:
        raise UserError(f"--peers: {unknown[0]!r} given; allowed: none, or some of {','.join(fitting)}")
    return () if asked == ("none",) else asked
