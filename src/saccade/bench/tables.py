"""Tables of the benchmarks' results."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from saccade.bench import decoding, start
from saccade.bench.attention import additive, scores
from saccade.bench.attention.goals import Goal
from saccade.bench.serving import load, resistance
from saccade.bench.training import accelerator, toolkits

ATTACK = ("p50", "p99 ms", "attacked", "p99 ms", "times", "answers", "not right")
LOSSES = {"processes": "processes lost", "503": "their requests: 503", "cut": "their requests: cut"}
SLOWEST = 12  # packages that are shown
ADDITIVE = (
    "shape",
    "pass",
    "who",
    "call",
    "device",
    "terms/s",
    "wall",
    "eager",
    "compile",
    "peak",
    "RMS",
    "/ plain",
    "gradients",
)


def of_attention(title: str, rows: list[scores.ScoreRow]) -> Table:
    """Build a table of time and memory in each case, compared with the peer."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for heading in ("what", "shape", "pass"):
        table.add_column(heading, no_wrap=True)
    for heading in ("ours", "theirs", "ratio", "peak", "theirs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            row.shape,
            "both" if row.backward else "forward",
            f"{row.seconds * 1e3:.1f} ms",
            "-" if row.peer_seconds is None else f"{row.peer_seconds * 1e3:.1f} ms",
            "-"
            if row.time_ratio is None
            else f"[{'green' if row.time_ratio <= 1.15 else 'yellow'}]{row.time_ratio:.2f}[/]",
            _mebibytes(row.peak_bytes),
            _mebibytes(row.peer_peak_bytes),
        )
    return table


def of_additive(title: str, rows: list[additive.AdditiveRow]) -> Table:
    """Build a table of all contestants in cases of one name; empty columns are left out."""
    lines = [_additive_line(row, rows) for row in rows]
    shapes = list(dict.fromkeys(row.shape for row in rows))
    said = [key for key in ADDITIVE if any(line.get(key, "-") != "-" for line in lines)]
    if all(line.get("device") == line.get("call") for line in lines):
        said.remove("device")
    if len(shapes) == 1:
        said.remove("shape")
        title = f"{title}, {shapes[0]}"
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for key in said:
        table.add_column(key, justify="left" if key in ("shape", "pass", "who") else "right", no_wrap=True)
    for line in lines:
        table.add_row(*(line.get(key, "-") for key in said))
    return table


def _additive_line(row: additive.AdditiveRow, rows: list[additive.AdditiveRow]) -> dict[str, str]:
    of_batch = "" if row.entries == row.batch else f", {row.entries} of {row.batch} entries"
    name = row.name + ("" if row.dtype == "float32" else f", {row.dtype}") + of_batch
    line = {"shape": row.shape, "pass": "both" if row.backward else "forward", "who": name}
    if row.rate is None or row.seconds is None or row.call_seconds is None or row.errors is None:
        return line
    ratios = {
        "wall": row.rate / additive.WALL if row.device == "cuda" else None,
        "eager": additive.ratio(rows, row, "eager step" if row.case == "step" else "eager"),
        "compile": additive.ratio(rows, row, "compile"),
    }
    errors = {"/ plain": row.error_ratio(rows, gradients=False), "gradients": row.error_ratio(rows, gradients=True)}
    return {
        **line,
        "call": f"{row.call_seconds * 1e3:,.3f} ms",
        "device": f"{row.seconds * 1e3:,.3f} ms",
        "terms/s": f"{row.rate / 1e12:.3g} T" if row.rate >= 1e11 else f"{row.rate / 1e9:.3g} G",
        "peak": _mebibytes(row.peak_bytes),
        "RMS": f"{row.errors['output'][0]:.1e}",
        **{key: "-" if ratio is None else f"{ratio:.3g}x" for key, ratio in ratios.items()},
        **{key: "-" if ratio is None else f"{ratio:.2f}x" for key, ratio in errors.items()},
    }


def of_goals(goals: list[Goal]) -> Table:
    """Build a table of the goals and the figures that were measured."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("goal", no_wrap=True)
    for heading in ("wanted", "found", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for goal in goals:
        wanted = f"at least {goal.least:g}" if goal.least is not None else f"at most {goal.most:g}"
        found = "-" if goal.found is None else f"{goal.found:.3g}"
        table.add_row(goal.name, wanted, found, "[green]met[/]" if goal.is_met else "[yellow]missed[/]")
    return table


def of_training(rows: list[toolkits.ToolkitRow]) -> Table:
    """Build a table of every toolkit's rate, and of our rate divided by it."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for heading in ("toolkit", "version", "torch"):
        table.add_column(heading, no_wrap=True)
    for heading in ("target tok/s", "ours is"):
        table.add_column(heading, justify="right")
    ours = rows[0].rate
    for row in rows:
        versions = ("-", "-") if row.versions is None else row.versions
        if row.rate is None or ours is None:
            table.add_row(row.title, *versions, f"missing: {row.problem}", "-")
        else:
            table.add_row(row.title, *versions, f"{row.rate:,.0f}", f"{ours / row.rate:.2f}x")
    return table


def on_accelerator(title: str, rows: list[accelerator.AcceleratorRow]) -> Table:
    """Build a table of all contestants on one training text; the last column is our rate divided by theirs."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("target tok/s", "ms a step", "of ceiling", "real", "peak", "set-up", "ours is"):
        table.add_column(heading, justify="right", no_wrap=True)
    ours = next(row.rate for row in rows if row.name == accelerator.OURS)
    for row in rows:
        if row.rate is None or row.step_seconds is None:
            table.add_row(row.title, "-")
            continue
        table.add_row(
            row.title,
            f"{row.rate:,.0f}",
            f"{row.step_seconds * 1e3:.1f}",
            "-" if row.share is None else f"{row.share:.0%}",
            "-" if row.real_share is None else f"{row.real_share:.0%}",
            "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.1f} GiB",
            "-" if row.setup_seconds is None else f"{row.setup_seconds:.0f} s",
            "-" if ours is None else f"{ours / row.rate:.2f}x",
        )
    return table


def of_decoding(rows: list[decoding.DecodeRow]) -> Table:
    """Build a table of all contestants by beam and batch; the last column is our rate divided by theirs."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for heading in ("beam", "batch"):
        table.add_column(heading, justify="right")
    table.add_column("", no_wrap=True)
    for heading in ("tok/s", "ms a sentence", "ours is"):
        table.add_column(heading, justify="right", no_wrap=True)
    ours = {(row.beam, row.batch): row.rate for row in rows if row.name == accelerator.OURS}
    for row in rows:
        place, own = (str(row.beam), str(row.batch)), ours.get((row.beam, row.batch))
        if row.rate is None or row.seconds is None:
            table.add_row(*place, row.title, "-")
        else:
            ratio = "-" if own is None else f"{own / row.rate:.2f}x"
            table.add_row(*place, row.title, f"{row.rate:,.0f}", f"{row.seconds / row.batch * 1e3:,.2f}", ratio)
    return table


def of_starts(rows: list[start.StartRow]) -> Table:
    """Build a table of commands, with what is beyond an import of torch."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("seconds", "above torch", "CPU seconds", "MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    torch = next(row.seconds for row in rows if row.title == "import torch")
    for row in rows:
        above = f"{row.seconds - torch:.2f}" if row.seconds > torch else ""
        table.add_row(row.title, f"{row.seconds:.2f}", above, f"{row.cpu_seconds:.2f}", f"{row.mebibytes:,.0f}")
    return table


def of_imports(rows: list[start.ImportRow]) -> Table:
    """Build a table of the slowest packages that a command imports."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("package")
    for heading in ("ms", "modules"):
        table.add_column(heading, justify="right")
    for row in rows[:SLOWEST]:
        table.add_row(row.package, f"{1000 * row.seconds:.0f}", str(row.modules))
    return table


def problems(
    rows: list[accelerator.AcceleratorRow] | list[decoding.DecodeRow] | list[additive.AdditiveRow],
) -> list[str]:
    """List the reasons why rows have no figures, each reason once."""
    return list(dict.fromkeys(f"{row.title}: {row.problem}" for row in rows if row.problem is not None))


def of_serving(report: load.LoadReport) -> Table:
    """Build a table that compares both loads, followed by the memory."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("one at a time", "all together"):
        table.add_column(heading, justify="right", no_wrap=True)
    both = report.alone.as_dict(), report.together.as_dict()
    table.add_row("answers a second", *(f"{found['rate']:,.1f}" for found in both), style="bold")
    for key in ("p50", "p99"):
        table.add_row(key, *(f"{1000 * found[key]:,.0f} ms" for found in both))
    for key in ("answers", "refused", "errors", "lost", "swapped", "wrong"):
        table.add_row(f"{key} (429)" if key == "refused" else key, *(f"{found[key]:,}" for found in both))
    table.add_row("times as many", "", f"{report.gain:.1f}")
    for how, count in (report.losses or {}).items():
        table.add_row(LOSSES[how], "", f"{count:,}")
    for count, mebibytes in report.memory:
        table.add_row(f"memory after {count:,}", "", f"{mebibytes:,.0f} MiB")
    return table


def of_attacks(rows: Sequence[resistance.AttackRow]) -> Table:
    """Build a table of attacks: what well-behaved clients see before each, and during it."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("attack", no_wrap=True)
    for heading in ATTACK:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        times = (f"{1000 * one.percentile(share):,.0f}" for one in (row.quiet, row.attacked) for share in (0.5, 0.99))
        found = row.attacked.as_dict()
        counts = (f"{found['answers']:,}", f"{row.num_not_right:,}")
        table.add_row(row.name, *times, f"{row.times:.1f}", *counts, style="bold" if row.is_bad else "")
    return table


def _mebibytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 2**20:,.0f} MiB"
