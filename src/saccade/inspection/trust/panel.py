"""Shows how far attention may be trusted: tables and curves in the terminal, a picture, or a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill, shorten
from typing import Any, NamedTuple

from markupsafe import Markup
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from saccade.errors import UserError
from saccade.files import replace_file
from saccade.inspection.draw import braille, heatmap
from saccade.inspection.draw import figure as pictures
from saccade.inspection.pages import curves, report
from saccade.inspection.pages.curves import Line
from saccade.inspection.pages.render import render_table
from saccade.inspection.trust.evidence import SHARES, Evidence
from saccade.inspection.trust.verdict import Agreement, TrustFigures, format_decimals

ENDINGS = (*pictures.PICTURES, ".html")
NAMES = {"gradient": "gradient x input", "erasure": "erasing"}
LOOKS = {"attention": "C0-", "gradient": "C1--", "erasure": "k-.", "random": "C7:"}
PANEL_WIDTH = braille.WIDTH + 12
TINY = 1e-12
HEADINGS = {
    "tau": "Does it rank words alike?",
    "moved": "Do other weights matter?",
    "words": "What is each word worth?",
    "curves": "What does erasing cost?",
}
EXPLAINED = {
    "tau": "Kendall's tau (1: words rank alike, 0: no relation)",
    "moved": "When the model weighs otherwise",
    "words": "What each word is worth, in % of the greatest",
    "curves": "log p of a step of the answer as words are erased",
}


class Cells(NamedTuple):
    """A table of texts: its topic, its head and its rows; the first cell of each row is a name."""

    topic: str
    head: list[str]
    rows: list[list[str]]


def check_ending(path: Path) -> None:
    """Refuse a path whose ending is no format of a panel."""
    if path.suffix not in ENDINGS:
        raise UserError(f"{path}: a panel ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")


def in_terminal(panel: TrustFigures, *, console: Console) -> RenderableType:
    """Draw the tables and curves, and the verdict below them."""
    parts: list[RenderableType] = []
    for cells in _tables(panel):
        parts += [_caption(cells.topic), _table(cells, console), ""]
    parts.append(_caption("curves"))
    parts += _curves(panel, console)
    return Group(*parts, "", Text(panel.verdict.sentence, style="bold"))


def _tables(panel: TrustFigures) -> Iterator[Cells]:
    """Yield all tables; a single text also gets one of its words."""
    if panel.alone is not None:
        yield _words(panel.alone)
    yield _taus(panel)
    yield _moves(panel)


def _taus(panel: TrustFigures) -> Cells:
    levels = {"": panel.steps} | ({"whole: ": panel.whole} if panel.has_steps else {})
    head = ["", *(level + name for level in levels for name in ("gradient", "erasing"))]
    columns = [column for agreement in levels.values() for column in _columns(agreement)]
    names = ["attention", "uniform weights", "random weights", "random, best 5%", "gradient x input"]
    rows = [[name, *row] for name, row in zip(names, zip(*columns, strict=True), strict=True)]
    if (best := panel.steps.best_head) is not None:
        taus = [
            cell for agreement in levels.values() for cell in ("", format_decimals(float(agreement.heads_LH[best])))
        ]
        rows.append([f"layer {best[0]}, head {best[1]}", *taus])
    return Cells("tau", head, rows)


def _columns(found: Agreement) -> list[list[str]]:
    """Format the taus against gradient and against erasing as two columns."""
    kinds = (found.attention, found.uniform, found.random, found.floor)
    columns = {name: [format_decimals(kind[name]) for kind in kinds] for name in NAMES}
    return [[*columns["gradient"], ""], [*columns["erasure"], format_decimals(found.gradient)]]


def _moves(panel: TrustFigures) -> Cells:
    rows = [
        [name, f"{one.distance:.2f}", format_decimals(one.log_probability), f"{100 * one.same:.0f}%"]
        for name, one in panel.moved.items()
    ]
    return Cells("moved", ["", "p moves by", "log p changes by", "same choice"], rows)


def _words(found: Evidence) -> Cells:
    worth = _sum_evidence(found)
    rows = [
        [word, *(f"{round(100 * value)}" for value in values)]
        for word, *values in zip(found.words, *worth.values(), strict=True)
    ]
    return Cells("words", ["", *worth], rows)


def _sum_evidence(found: Evidence) -> dict[str, list[float]]:
    """Sum attention, gradient and erasing of each word over the answer, as shares of the greatest."""
    say = {"attention": found.weight_TW, "gradient x input": found.gradient_TW, "erasing": found.erasure_TW}
    sums = {name: value_TW.sum(0) for name, value_TW in say.items()}
    return {name: (sum_W / sum_W.abs().max().clamp(min=TINY)).tolist() for name, sum_W in sums.items()}


def _caption(topic: str) -> Text:
    return Text(EXPLAINED[topic], style="bold")


def _table(cells: Cells, console: Console) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(cells.head):
        table.add_column(name, justify="right" if number else "left")
    for row in cells.rows:
        table.add_row(*(Text(heatmap.make_printable(cell, console.encoding)) for cell in row))
    return table


def _curves(panel: TrustFigures, console: Console) -> Iterator[RenderableType]:
    per_row = max(1, (console.width + 2) // PANEL_WIDTH)
    values = [value for curve in panel.curves.values() for value in curve]
    named = {
        f"{NAMES.get(name, name)} (cost {panel.cost(name):.2f})": (list(SHARES), curve)
        for name, curve in panel.curves.items()
    }
    for start in range(0, len(named), per_row):
        part = dict(list(named.items())[start : start + per_row])
        yield braille.in_terminal(part, console=console, between=(min(values), max(values)), end="all words")


def to_file(panel: TrustFigures, path: Path, *, title: str) -> None:
    """Write a PNG, SVG, PDF or HTML, by the path's ending."""
    check_ending(path)
    if path.suffix == ".html":
        _page(panel, path, title)
    else:
        _picture(panel, path, title)


def _picture(panel: TrustFigures, path: Path, title: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    one = panel.alone
    figure = Figure(figsize=(12, 4.6 if one is None else 8.4), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    heading = f"{shorten(title, 120, placeholder='…')}\n{fill(panel.verdict.sentence, 120)}"
    figure.suptitle(heading, fontsize=11, parse_math=False)
    rows = figure.subfigures(1 if one is None else 2, 1, squeeze=False)[:, 0]
    bars, lines, moves = rows[0].subplots(1, 3, width_ratios=[1.1, 1.2, 0.8])
    _draw_taus(bars, panel)
    _draw_curves(lines, panel)
    _draw_moves(moves, panel)
    if one is not None:
        _draw_words(rows[1].subplots(), one)
    with replace_file(path) as draft:
        figure.savefig(draft)


def _draw_taus(axes: Any, panel: TrustFigures) -> None:
    """Draw the bars of attention, uniform weights and gradient; dashes show the best 5% of random rankings."""
    found = panel.steps
    groups = {"attention": found.attention, "uniform": found.uniform, "gradient": {"erasure": found.gradient}}
    for index, (name, against) in enumerate(groups.items()):
        places = [list(NAMES).index(measure) + 0.26 * (index - 1) for measure in against]
        bars = axes.bar(places, against.values(), 0.24, label=name, color=("C0", "C7", "C1")[index])
        axes.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
    for place, measure in enumerate(NAMES):
        label = "random, best 5%" if place == 0 else None
        axes.hlines(found.floor[measure], place - 0.4, place + 0.4, colors="k", linestyles="--", lw=1, label=label)
    axes.axhline(0, color="k", lw=0.6)
    axes.set_xticks(range(len(NAMES)), [f"against {name}" for name in NAMES.values()])
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.35 * (high - low))  # room for the legend
    axes.set_ylabel("Kendall's tau")
    axes.set_title(HEADINGS["tau"], fontsize=10)
    axes.legend(fontsize=8, ncols=2, loc="upper center")


def _draw_curves(axes: Any, panel: TrustFigures) -> None:
    for name, curve in panel.curves.items():
        axes.plot([100 * share for share in SHARES], curve, LOOKS[name], label=NAMES.get(name, name))
    axes.set_xlabel("% of words erased, in the order of ...")
    axes.set_ylabel("log p of a step of the answer")
    axes.set_title(HEADINGS["curves"], fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _draw_moves(axes: Any, panel: TrustFigures) -> None:
    bars = axes.bar(list(panel.moved), [one.distance for one in panel.moved.values()], 0.6, color="C0")
    axes.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
    axes.set_ylim(0, 1)
    axes.set_ylabel("p moves by (total variation distance)")
    axes.set_title(HEADINGS["moved"], fontsize=10)


def _draw_words(axes: Any, found: Evidence) -> None:
    for index, (name, shares) in enumerate(_sum_evidence(found).items()):
        places = [place + 0.27 * (index - 1) for place in range(len(found.words))]
        axes.bar(places, shares, 0.25, label=name, color=("C0", "C1", "k")[index])
    is_narrow = len(found.words) > heatmap.MANY_KEYS or max(map(len, found.words)) > heatmap.WIDEST_WORD
    axes.set_xticks(range(len(found.words)), found.words, rotation=90 if is_narrow else 0, parse_math=False)
    axes.axhline(0, color="k", lw=0.6)
    axes.set_ylabel("share of the greatest")
    axes.set_title(HEADINGS["words"], fontsize=10)
    axes.legend(fontsize=8)


def _page(panel: TrustFigures, path: Path, title: str) -> None:
    header = Markup("<p>{}</p>").format(panel.verdict.sentence)
    lines = [Line(NAMES.get(name, name), list(zip(SHARES, curve, strict=True))) for name, curve in panel.curves.items()]
    told = "; ".join(f"{NAMES.get(name, name)} costs {panel.cost(name):.2f}" for name in panel.curves)
    chart = curves.draw_chart(lines, label=f"{EXPLAINED['curves']}: {told}", x_label="erased", x_end=1.0)
    figure = curves.draw_figure(f"{EXPLAINED['curves']}, in the order of ...", chart, lines, told)
    parts = [(HEADINGS[cells.topic], _html_table(cells)) for cells in _tables(panel)]
    charts = Markup('<div class="charts">{}</div>').format(figure)
    report.write_page(path, title, header, [*parts, (HEADINGS["curves"], charts)])


def _html_table(cells: Cells) -> Markup:
    return render_table(EXPLAINED[cells.topic], cells.head, cells.rows, template="named_rows.html")
