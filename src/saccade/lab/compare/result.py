"""The result of a comparison: compare.json, a table for people, in Markdown too, and quality by cost as a picture."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from saccade.files import replace_file
from saccade.inspection.draw.figure import open_picture
from saccade.inspection.draw.panels import COLOURS
from saccade.lab.compare.statistics import Estimate, VariantRuns, correct, draw_again, interval, permute

HEADINGS = ("variant", "parameters", "rate", "minutes", "{metric}", "95%", "better by", "95%", "p")
COSTS = 4  # of these: the name, and what it costs
WIDEST = 1000  # columns that a table may want
LONG_NAME = 42  # letters: two such names don't stand side by side below a picture
Scored = Mapping[str, Sequence[Mapping[str, Any]]]  # what the worker wrote of each seed, by variant


def write(out: Path, facts: Mapping[str, Any], scored: Scored, console: Console) -> dict[str, Any]:
    """Write all files, print the table, and return what compare.json holds."""
    found = {**facts, **judge(scored, facts["rates"])}
    with replace_file(out / "compare.json") as draft:
        draft.write_text(json.dumps(found, indent=1, ensure_ascii=False), "utf-8")
    head = [heading.format(metric=name_metric(found)) for heading in HEADINGS]
    rows = [_cells(row) for row in found["variants"]]
    with replace_file(out / "compare.md") as draft:
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
        draft.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines), "utf-8")
    for ending in ("png", "svg"):
        draw(out / f"compare.{ending}", found)
    show(head, rows, console)
    for line in describe(found):
        console.print(line, highlight=False, style="dim")
    console.print(f"{out}: compare.json, compare.md, compare.png, compare.svg", highlight=False, soft_wrap=True)
    return found


def show(head: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print the table; where it is wider than the terminal, names stand above it, with what they cost, by numbers."""
    table = _make_table(head, rows)
    if console.measure(table, options=console.options.update(width=WIDEST)).maximum > console.width:
        for number, (name, *cost) in enumerate((row[:COSTS] for row in rows), 1):
            said = ", ".join(f"{value} {what}" for what, value in zip(head[1:COSTS], cost, strict=True))
            console.print(f"{number}  {name} [dim]({said})[/dim]", highlight=False)
        numbered = ([str(number), *row[COSTS:]] for number, row in enumerate(rows, 1))
        table = _make_table(["", *head[COSTS:]], list(numbered))
    console.print(table)


def _make_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(header_style="bold", box=None, pad_edge=False)
    for number, heading in enumerate(head):
        table.add_column(heading, justify="right" if number else "left", no_wrap=bool(number))
    for row in rows:
        table.add_row(*row)
    return table


def judge(scored: Scored, rates: Mapping[str, float]) -> dict[str, Any]:
    """Estimate each variant, and by how much it differs from the first."""
    samples = {name: _sample(runs) for name, runs in scored.items()}
    first_runs = next(iter(scored.values()))
    sign = -1 if first_runs[0]["is_error"] else 1
    drawn = dict(zip(samples, draw_again(list(samples.values())), strict=True))
    names = list(samples)
    first = names[0]
    p = [permute(samples[name], samples[first]) for name in names[1:]]
    rows = []
    for name, p_alone, p_holm in zip(names, [None, *p], [None, *correct(p)], strict=True):
        gap = sign * (statistics.mean(samples[name].scores) - statistics.mean(samples[first].scores))
        better = None if name == first else interval(gap, sign * (drawn[name] - drawn[first]))._asdict()
        runs = scored[name]
        rows.append(
            {
                "name": name,
                "parameters": runs[0]["parameters"],
                "learning_rate": rates[name],
                "minutes": statistics.mean(run["seconds"] for run in runs) / 60,
                "scores": list(samples[name].scores),
                **interval(statistics.mean(samples[name].scores), drawn[name])._asdict(),
                "better": better,
                "p": p_alone,
                "p_holm": p_holm,
            }
        )
    rows_of = samples[first].row_RNK
    return {
        "metric": first_runs[0]["metric"],
        "is_error": first_runs[0]["is_error"],
        "set": first_runs[0]["set"],
        "num_examples": None if rows_of is None else rows_of.shape[1],
        "variants": rows,
    }


def _sample(runs: Sequence[Mapping[str, Any]]) -> VariantRuns:
    scores = [run["score"] for run in runs]
    if any(run["row_NK"] is None for run in runs):
        return VariantRuns(scores)
    return VariantRuns(scores, np.array([run["row_NK"] for run in runs], float), runs[0]["combine"])


def describe(found: Mapping[str, Any]) -> list[str]:
    """Say what the table's numbers are."""
    first, seeds = found["variants"][0]["name"], len(found["seeds"])
    chosen = "" if found["set"] == "test" else ", which also chose rates and models, as there is no data.test"
    if found["num_examples"] is None:
        how = "95%: bootstrap over seeds; p: permutation of seeds"
    else:
        how = f"95%: paired bootstrap over seeds and {found['num_examples']:,} examples; p: permutation of outputs"
    steps = found["steps"].values()
    timed = (
        f" Steps: {min(steps):,} to {max(steps):,}, as many as take the time of {first}." if len({*steps}) > 1 else ""
    )
    return [
        f"Means of {seeds} seeds on the set {found['set']}{chosen}. Better by: than {first}. {how}, after Holm.",
        f"Minutes are those of this machine, beside whatever else ran.{timed if found['equal'] == 'time' else ''}",
    ]


def name_metric(found: Mapping[str, Any]) -> str:
    """Return the metric, and whether less of it is better."""
    return f"{found['metric']}{' (less is better)' if found['is_error'] else ''}"


def _cells(row: Mapping[str, Any]) -> list[str]:
    better = row["better"]
    return [
        row["name"],
        f"{row['parameters']:,}",
        f"{row['learning_rate']:.3g}",
        f"{row['minutes']:.2g}",
        f"{row['value']:.2f}",
        _range(row),
        "" if better is None else f"{better['value']:+.2f}",
        "" if better is None else _range(better, "+"),
        "" if row["p_holm"] is None else f"{row['p_holm']:.3f}",
    ]


def _range(estimate: Mapping[str, float], sign: str = "") -> str:
    return f"{estimate['low']:{sign}.2f} to {estimate['high']:{sign}.2f}"


def draw(path: Path, found: Mapping[str, Any]) -> None:
    """Draw quality by minutes of training: the mean with its interval, and each seed as a point."""
    num_columns = 2 if max(len(row["name"]) for row in found["variants"]) < LONG_NAME else 1
    with open_picture(path, (6.4, 4.0 + 0.18 * len(found["variants"]) / num_columns)) as figure:
        axes = figure.subplots()
        for number, row in enumerate(found["variants"]):
            colour, estimate = COLOURS[number % len(COLOURS)], Estimate(row["value"], row["low"], row["high"])
            ends = [[estimate.value - estimate.low], [estimate.high - estimate.value]]
            marker = "os^Dv<>Ph"[number // len(COLOURS) % 9]
            style: Any = {"color": colour, "marker": marker, "capsize": 3, "markersize": 6, "linestyle": ""}
            axes.errorbar([row["minutes"]], [estimate.value], yerr=ends, label=row["name"], **style)
            axes.plot([row["minutes"]] * len(row["scores"]), row["scores"], "_", color=colour, alpha=0.6)
        axes.set_xlabel("minutes of training", fontsize=9)
        axes.set_ylabel(f"{name_metric(found)} on the set {found['set']}", fontsize=9)
        axes.set_title("Quality by cost; bars: 95%, dashes: seeds", fontsize=10, loc="left")
        axes.tick_params(labelsize=8)
        axes.grid(color="#e3e6ea", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower left", ncols=num_columns, fontsize=8, frameon=False)
