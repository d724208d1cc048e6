"""Runs an experiment over several seeds: a picture, a table, result.json, and the verdict."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from saccade.errors import UserError
from saccade.files import replace_file
from saccade.inspection.draw import braille, panels
from saccade.inspection.draw.panels import Axes, BandCurve
from saccade.lab.experiment import RULE, Check, Experiment, Finding, Measurements

FEWEST_SEEDS = 3


def run(
    experiment: Experiment, *, seeds: int, first: int, is_full: bool, out: Path, console: Console
) -> dict[str, Any]:
    """Measure with every seed, draw and judge; return what is written to result.json."""
    if seeds < FEWEST_SEEDS:
        raise UserError(f"--seeds: {seeds} given; allowed: {FEWEST_SEEDS} or more, as one or two say little")
    _introduce(experiment, console)
    began, chosen = time.perf_counter(), range(first, first + seeds)
    measured = [_measure(experiment, seed, is_full, console) for seed in chosen]
    verdict, findings = experiment.judge(measured)
    drawn = [(Axes(*panel), _join(measured, name)) for name, panel in experiment.panels.items()]
    out.mkdir(parents=True, exist_ok=True)
    for ending in ("png", "svg"):
        panels.to_file(out / f"{experiment.name}.{ending}", drawn, title=experiment.question)
    result = _result(experiment, measured, findings) | {
        "verdict": verdict,
        "seeds": list(chosen),
        "full": is_full,
        "seconds": round(time.perf_counter() - began, 1),
    }
    with replace_file(out / "result.json") as draft:
        draft.write_text(json.dumps(result, indent=1), "utf-8")
    _show(drawn, findings, verdict, console)
    console.print(f"{out}: result.json, {experiment.name}.png, {experiment.name}.svg")
    return result


def describe(check: Check) -> str:
    """Say the bounds of a check."""
    least, most = check.least, check.most
    if math.isfinite(least) and math.isfinite(most):
        return f"{least:.4g} to {most:.4g}"
    return f"at least {least:.4g}" if math.isfinite(least) else f"at most {most:.4g}"


def _measure(experiment: Experiment, seed: int, is_full: bool, console: Console) -> Measurements:
    """Measure with one seed, and say what was found, as a run of many seeds may be cut short."""
    measured = experiment.measure(seed, is_full)
    found = ", ".join(f"{check.number} {measured.numbers[check.number]:.4g}" for check in experiment.checks)
    console.print(f"seed {seed}: {found}", style="dim", highlight=False)
    return measured


def _result(experiment: Experiment, measured: Sequence[Measurements], findings: Sequence[Finding]) -> dict[str, Any]:
    told = ("name", "question", "claim", "source", "setup", "prediction")
    return {
        **{field: getattr(experiment, field) for field in told},
        "rule": RULE,
        "checks": [finding.plain() for finding in findings],
        "panels": {
            name: {line: [one.panels[name].get(line, []) for one in measured] for line in measured[0].panels[name]}
            for name in experiment.panels
        },
    }


def _join(measured: Sequence[Measurements], panel: str) -> dict[str, BandCurve]:
    return {name: BandCurve.of([one.panels[panel][name] for one in measured]) for name in measured[0].panels[panel]}


def _introduce(experiment: Experiment, console: Console) -> None:
    console.print(f"[bold]{experiment.question}[/bold]")
    for name in ("claim", "source", "setup", "prediction"):
        console.print(f"[bold]{name.capitalize()}:[/bold] {getattr(experiment, name)}", highlight=False)
    console.print()


def _show(
    drawn: Sequence[tuple[Axes, dict[str, BandCurve]]], findings: Sequence[Finding], verdict: str, console: Console
) -> None:
    for axes, bands in drawn:
        console.print(f"[bold]{axes.title}[/bold] ({axes.up} by {axes.across})", highlight=False)
        curves = {name: _curve(axes, band) for name, band in bands.items()}
        values = [value for _, heights in curves.values() for value in heights]
        ends = {name: f"{axes.across.split()[0]} {bands[name].x[-1]:g}" for name in bands}
        per_line = max(1, console.width // 40)
        names = list(curves)
        for at in range(0, len(names), per_line):
            part = {name: curves[name] for name in names[at : at + per_line]}
            shown = braille.in_terminal(part, console=console, between=(min(values), max(values)), end=ends[names[at]])
            console.print(shown)
        if axes.log_up:
            console.print("Heights are powers of ten.", style="dim")
    table = Table(header_style="bold", box=None, pad_edge=False)
    for heading in ("", "check", "wanted", "mean", "range of the seeds"):
        table.add_column(heading, no_wrap=heading != "check")
    for finding in findings:
        low, high = min(finding.values), max(finding.values)
        mark = "yes" if finding.is_met else "NO"
        mean = f"{statistics.mean(finding.values):.4g}"
        table.add_row(mark, finding.check.says, describe(finding.check), mean, f"{low:.4g} to {high:.4g}")
    console.print(table)
    num_met = sum(finding.is_met for finding in findings)
    console.print(f"[bold]Verdict: {verdict}[/bold] ({num_met} of {len(findings)} checks met for every seed)")


def _curve(axes: Axes, band: BandCurve) -> tuple[list[float], list[float]]:
    """Return a curve as the terminal draws it: logarithms where the picture has them."""
    x = [math.log2(value) for value in band.x] if axes.log_across else list(band.x)
    kept = [math.log10(value) for value in band.mean] if axes.log_up else list(band.mean)
    return x, kept
