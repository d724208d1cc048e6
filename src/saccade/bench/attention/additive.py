"""`saccade bench additive`: compares our additive attention with the plain expression, eager and compiled, and float64.

Queries and keys are projected beforehand, so that only the terms (one query, one key, one dimension) are timed. The
case of one query a step calls `attend` with its projection, as a decoder does. A peer that doesn't fit in memory runs
on a part of the batch, and its time and memory are multiplied. All inputs are drawn on the CPU, because a failed
capture of a CUDA graph leaves the device's generator unusable.
"""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, final

import psutil
import torch
from torch import Tensor

from saccade.attention.kernels.additive import series
from saccade.bench.attention.contestants import OURS, Run, contestant, plain, step
from saccade.bench.measure import captured_seconds, medians_side_by_side, queued_seconds
from saccade.training.memory import peak_memory

WALL = 4.0e12  # terms a second: the unit of an H200 that computes tanh
CHECKED = {"cpu": 1 << 22, "cuda": 1 << 28}  # terms computed in float64: whole entries, or the first queries of one
LAUNCHES = 1e-2  # seconds: what takes longer isn't captured, as it is launched while the last call runs
Errors = dict[str, tuple[float, float]]  # of the output and of each gradient: RMS, largest


class AttentionShape(NamedTuple):
    """The sizes B x T x S x D of an attention; values are D wide, too."""

    batch: int
    queries: int
    keys: int
    width: int

    def __str__(self) -> str:
        return "x".join(str(size) for size in self)

    @property
    def terms(self) -> int:
        return self.batch * self.queries * self.keys * self.width


@final
@dataclass(frozen=True)
class AdditiveCase:
    """A shape and the contestants that run it in turns; `scale` keeps queries and keys within the series' range."""

    name: str
    shape: AttentionShape
    contestants: tuple[str, ...]
    backward: bool = False
    dtype: torch.dtype = torch.float32
    scale: float = 1.0


@final
@dataclass(frozen=True)
class AdditiveRow:
    """The figures of one contestant in one case, or the reason why it has none."""

    case: str
    device: str
    shape: str
    batch: int
    backward: bool
    dtype: str
    name: str
    entries: int  # of the batch that were run; seconds and bytes are of all
    call_seconds: float | None = None  # as it is called
    seconds: float | None = None  # on the device alone, where the two differ
    rate: float | None = None  # terms a second
    peak_bytes: int | None = None  # with inputs and gradients
    errors: Errors | None = None
    plain_errors: Errors | None = None  # of the plain expression in float32
    problem: str | None = None  # with figures: they are less exact than wanted

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def title(self) -> str:
        return f"{self.name}, {self.shape}, {'both passes' if self.backward else 'forward'}"

    def error_ratio(self, rows: Sequence[AdditiveRow], *, gradients: bool) -> float | None:
        """Divide the RMS error by that of the plain expression in float32; of gradients, return the worst."""
        wanted = (self.case, self.shape, self.backward, self.dtype)
        eager = (r for r in rows if r.name.startswith("eager") and (r.case, r.shape, r.backward, r.dtype) == wanted)
        both = self.errors or {}, next((row.errors for row in eager if row.errors), self.plain_errors) or {}
        names = [name for name in both[0] if (name != "output") == gradients]
        return max((both[0][name][0] / max(both[1][name][0], 1e-30) for name in names), default=None)

    @property
    def largest_error(self) -> float:
        return self.errors["output"][1] if self.errors else math.inf


def all_cases(device: torch.device, *, quick: bool = False) -> list[AdditiveCase]:
    """List the cases: the goals' shapes on an accelerator, smaller ones on a CPU; `quick` compiles nothing."""
    is_cuda = device.type == "cuda"
    large, small, long = (
        AttentionShape(16, 1024, 1024, 256),
        AttentionShape(64, 64, 64, 512),
        AttentionShape(1, 32_768, 32_768, 128),
    )
    steps = [AttentionShape(64, 1, 30, 512), AttentionShape(64, 1, 30, 1000)]
    if not is_cuda:
        large, small, long = (
            AttentionShape(4, 256, 256, 128),
            AttentionShape(16, 32, 32, 256),
            AttentionShape(1, 2048, 2048, 64),
        )
    if quick:
        large, small, long, steps = (
            AttentionShape(2, 64, 64, 32),
            AttentionShape(4, 16, 16, 64),
            AttentionShape(1, 256, 256, 32),
            steps[:1],
        )
    names = ("exact", "eager") if quick else ("exact", "eager", "compile")
    pairs = [(shape, backward) for backward in (False, True) for shape in (("large", large), ("small", small))]
    cases = [AdditiveCase(name, shape, names, backward) for (name, shape), backward in pairs]
    if is_cuda:
        types = (torch.float32, torch.bfloat16)
        cases += [AdditiveCase("narrow", large, ("exact", "series"), dtype=dtype, scale=0.45) for dtype in types]
    cases.append(AdditiveCase("long", long, ("exact",), backward=True))
    pairs_of_steps = [(shape, backward) for shape in steps for backward in (False, True)]
    return cases + [
        AdditiveCase("step", shape, ("attend", "eager step"), backward) for shape, backward in pairs_of_steps
    ]


def measure(case: AdditiveCase, device: torch.device, *, most: int = 30) -> list[AdditiveRow]:
    """Time all contestants of a case in at most `most` turns; an error becomes the `problem` of a row."""
    rows = {name: _row(case, device, name) for name in case.contestants}
    try:
        _free_memory(device)
        inputs = _inputs(case)
        *inputs, grad = (x.to(device) for x in inputs)
        passes = {}
        for name in rows:
            rows[name], run = _check(case, rows[name], inputs, grad)
            if run is not None:
                passes[name] = run
            _free_memory(device)
        calls = medians_side_by_side(passes, device, at_least=0.2, most=most) if passes else {}
    except Exception as error:
        return [replace(row, problem=row.problem or _problem(error)) for row in rows.values()]
    for name, seconds in calls.items():
        times = case.shape.batch / rows[name].entries
        alone, problem = _device_seconds(passes[name], seconds, device)
        rate = case.shape.terms / (alone * times)
        rows[name] = replace(
            rows[name], call_seconds=seconds * times, seconds=alone * times, rate=rate, problem=problem
        )
    return list(rows.values())


def _row(case: AdditiveCase, device: torch.device, name: str) -> AdditiveRow:
    dtype, shape = str(case.dtype).removeprefix("torch."), (str(case.shape), case.shape.batch)
    return AdditiveRow(case.name, device.type, *shape, case.backward, dtype, name, case.shape.batch)


def _check(
    case: AdditiveCase, row: AdditiveRow, inputs: list[Tensor], grad: Tensor
) -> tuple[AdditiveRow, Callable[[], dict[str, Tensor]] | None]:
    """Run a contestant once for its errors and memory, and return the call to time, or None if it failed."""
    device = grad.device
    try:
        entries = case.shape.batch if row.name in OURS else _count_fitting(case, device)
        own = [x[:entries] for x in inputs]
        run = functools.partial(_run_pass, contestant(row.name), own, grad[:entries], case.backward)
        errors, plain_errors = _measure_errors(run(), inputs, grad, case.backward)
        peak = peak_memory(run, device)
        held = sum(x.nbytes for x in (*own, grad[:entries]))
        peak = None if peak is None else (peak + held) * case.shape.batch // entries
        row = replace(row, entries=entries, errors=errors, plain_errors=plain_errors, peak_bytes=peak)
        return row, run
    except Exception as error:
        return replace(row, problem=_problem(error)), None


def _inputs(case: AdditiveCase) -> list[Tensor]:
    """Draw queries, keys, v, values and the output's gradient on the CPU."""
    batch, queries, keys, width = case.shape
    query, key = (torch.randn(batch, steps, width) * case.scale for steps in (queries, keys))
    if case.scale != 1:  # within the series' range, whatever is drawn
        query, key = (x.clamp_(-series.RANGE / 2, series.RANGE / 2) for x in (query, key))
    v, value = torch.randn(batch, width) * width**-0.5, torch.randn(batch, keys, width)
    return [x.to(case.dtype) for x in (query, key, v, value, torch.randn(batch, queries, width))]


def _run_pass(run: Run, inputs: Sequence[Tensor], grad: Tensor, backward: bool) -> dict[str, Tensor]:
    """Return the output and, after a backward pass, the gradients by name."""
    if not backward:
        with torch.no_grad():
            return {"output": run(*inputs)}
    # Leaves of this pass: autograd waits for the stream on which a tensor's history began, and a graph must not wait.
    leaves = [x.detach().requires_grad_() for x in inputs]
    output = run(*leaves)
    gradients = torch.autograd.grad(output, leaves, grad, allow_unused=True)
    named = zip(("query", "key", "v", "value"), gradients, strict=True)
    return {"output": output.detach(), **{name: x for name, x in named if x is not None}}


def _measure_errors(
    found: dict[str, Tensor], inputs: list[Tensor], grad: Tensor, backward: bool
) -> tuple[Errors, Errors]:
    """Measure the errors against float64 of some terms: those of `found`, and of the plain expression in float32."""
    (entries, queries, width), keys = inputs[0].shape, inputs[1].shape[1]
    most = CHECKED[grad.device.type]
    entries = min(entries, max(1, most // (queries * keys * width)), len(found["output"]))
    steps = min(queries, max(1, most // (keys * width)))
    reference = functools.partial(step, backend="reference") if queries == 1 else plain

    def checked(dtype: torch.dtype) -> dict[str, Tensor]:
        cut = [x[:entries].to(dtype) for x in (inputs[0][:, :steps], *inputs[1:])]
        return _run_pass(reference, cut, grad[:entries, :steps].to(dtype), backward)

    exactly, plainly = checked(torch.float64), checked(torch.float32)
    names = [name for name in exactly if name in ("output", "query") or steps == queries]

    def away(results: dict[str, Tensor]) -> Errors:
        far = {name: results[name][:entries, : exactly[name].shape[1]].double() - exactly[name] for name in names}
        return {name: (float(x.square().mean().sqrt()), float(x.abs().amax())) for name, x in far.items()}

    return away(found), away(plainly)


def _device_seconds(run: Callable[[], object], seconds: float, device: torch.device) -> tuple[float, str | None]:
    """Measure the time without the host's; if no graph can be captured, say why it is included."""
    if device.type != "cuda":
        return seconds, None
    try:
        seconds = min(seconds, queued_seconds(run))
        return (seconds if seconds > LAUNCHES else min(seconds, captured_seconds(run))), None
    except Exception as error:
        return seconds, f"timed with its launches, as no graph was captured: {_problem(error)}"


def _count_fitting(case: AdditiveCase, device: torch.device) -> int:
    """Count the entries whose broadcast tensors fit in memory: three for a forward pass, five with a backward pass."""
    room = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available // 2
    entries, each = case.shape.batch, case.shape.terms // case.shape.batch * case.dtype.itemsize
    while entries > 1 and entries * each * (5 if case.backward else 3) > 0.9 * room:
        entries //= 2
    return entries


def _free_memory(device: torch.device) -> None:
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _problem(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def ratio(rows: Sequence[AdditiveRow], row: AdditiveRow, peer: str) -> float | None:
    """Divide the rate of a row by the rate of a peer in the same case."""
    case = (row.case, row.shape, row.backward, row.dtype)
    rates = [r.rate for r in rows if r.name == peer and (r.case, r.shape, r.backward, r.dtype) == case]
    return row.rate / rates[0] if row.rate and rates and rates[0] else None
