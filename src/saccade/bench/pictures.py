"""Pictures of the training and decoding benchmarks: bars for all contestants, and growth in small multiples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saccade.bench import decoding
from saccade.bench.training import accelerator
from saccade.bench.training.accelerator import OURS
from saccade.files import replace_file

OUR_COLOUR = "tab:orange"
GREYS = ("0.72", "0.45")
LINES = ("tab:blue", "tab:green", "tab:purple", "tab:brown", "tab:red", "tab:gray")
AXES = {"batch": "tokens a batch", "length": "mean length", "width": "width", "vocabulary": "vocabulary"}


def of_training(report: accelerator.AcceleratorReport, path: Path) -> None:
    """Draw a panel of bars for each training text and, if growth was measured, a panel for each axis of growth."""
    from matplotlib.figure import Figure

    works = {work: rows for work, rows in report.tables().items() if rows[0].axis is None}
    grown = [axis for axis in AXES if any(row.axis == axis for row in report.rows)]
    figure = Figure(figsize=(11, 3.4 + 3.2 * bool(grown)), layout="constrained")
    parts = figure.subfigures(1 + bool(grown), 1, squeeze=False)[:, 0]
    panels, everybody = (
        parts[0].subplots(1, len(works), squeeze=False)[0],
        _titles([row for rows in works.values() for row in rows]),
    )
    for axes, (work, rows) in zip(panels, works.items(), strict=True):
        _bars(axes, work, everybody, {row.title: row.rate for row in rows}, names=axes is panels[0])
    parts[0].supxlabel("real target tokens a second", fontsize="medium")
    if grown:
        _growth(report.rows, grown, parts[1])
    _save(figure, path)


def of_decoding(rows: Sequence[decoding.DecodeRow], path: Path) -> None:
    """Draw a panel of bars for each beam and batch."""
    from matplotlib.figure import Figure

    beams, batches = (list(dict.fromkeys(values)) for values in zip(*((r.beam, r.batch) for r in rows), strict=True))
    figure = Figure(figsize=(2.2 + 3.2 * len(batches), 0.6 + 2.0 * len(beams)), layout="constrained")
    panels, everybody = figure.subplots(len(beams), len(batches), squeeze=False), _titles(rows)
    for beam, line in zip(beams, panels, strict=True):
        for index, (batch, axes) in enumerate(zip(batches, line, strict=True)):
            found = {r.title: r.rate for r in rows if (r.beam, r.batch) == (beam, batch)}
            title = f"{'greedy' if beam == 1 else f'beam {beam}'}, batch {batch}"
            _bars(axes, title, everybody, found, names=index == 0)
    figure.supxlabel("tokens a second", fontsize="medium")
    _save(figure, path)


def _titles(rows: Sequence[accelerator.AcceleratorRow | decoding.DecodeRow]) -> list[str]:
    return list(dict.fromkeys(row.title for row in rows))


def _bars(axes: Any, title: str, everybody: list[str], found: dict[str, float | None], *, names: bool) -> None:
    """Draw a bar with its figure for each contestant; only the first panel of a line shows their names."""
    colours = [OUR_COLOUR if label == OURS else GREYS["compiled" in label] for label in everybody]
    bars = axes.barh(range(len(everybody)), [found.get(label) or 0.0 for label in everybody], color=colours, height=0.7)
    texts = [_short(rate) if (rate := found.get(x)) else "none" if x in found else "not run" for x in everybody]
    axes.bar_label(bars, texts, padding=3, fontsize="small")
    axes.set_yticks(range(len(everybody)), everybody if names else [""] * len(everybody))
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set_title(title, fontsize="medium", loc="left")
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.xaxis.set_major_locator(_few_ticks())
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)


def _growth(rows: Sequence[accelerator.AcceleratorRow], grown: Sequence[str], part: Any) -> None:
    """Draw lines on one scale of rates, so that panels can be compared."""
    panels = part.subplots(1, len(grown), sharey=True, squeeze=False)[0]
    names = list(dict.fromkeys((row.name, row.title) for row in rows if row.axis is not None))
    colours = dict(zip((name for name, _ in names if name != OURS), LINES, strict=False)) | {OURS: OUR_COLOUR}
    for axes, axis in zip(panels, grown, strict=True):
        for name, title in names:
            found = [(r.point, r.rate) for r in rows if (r.axis, r.name) == (axis, name) and r.rate is not None]
            points, rates = zip(*found, strict=True) if found else ((), ())
            axes.plot(points, rates, marker="o", markersize=4, color=colours[name], label=title)
        ticks = sorted({row.point for row in rows if row.axis == axis and row.point is not None})
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{point:.0f}" if point < 10_000 else _short(point) for point in ticks])
        axes.set_xlabel(AXES[axis])
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: _short(value))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    panels[0].set_ylabel("real target tokens a second")
    part.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4)


def _short(value: float) -> str:
    """Format a number with three digits: 28, 1,200 as 1.2k, 1,050,000 as 1.05M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _save(figure: Any, path: Path) -> None:
    with replace_file(path) as draft:
        figure.savefig(draft, dpi=150, format="png")
