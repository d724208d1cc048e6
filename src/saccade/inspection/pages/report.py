"""A run as one page, `report.html`: it opens anywhere, offline, and loads nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeGuard

import yaml
from markupsafe import Markup

from saccade.files import replace_file
from saccade.inspection.pages import curves
from saccade.inspection.pages.curves import Line
from saccade.inspection.pages.render import render, render_table

NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact": "exactly right",
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "rouge": "ROUGE-L",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "wer": "word error",
} | {f"bleu{order}": f"BLEU-{order}" for order in range(1, 5)}
STATIC = Path(__file__).with_name("static")
LOWER_IS_BETTER = ("valid_wer",)
OTHER_SCALES = ("valid_loss", "valid_perplexity")

Log = Sequence[Mapping[str, Any]]
Bucket = tuple[str, int, float | None]  # source lengths, how many sentences have them, their score


def write(
    path: Path,
    *,
    title: str,
    config: Mapping[str, Any],
    versions: Mapping[str, str],
    log: Log,
    parameters: int | None = None,
    data: Sequence[Mapping[str, Any]] = (),
    scores: Mapping[str, Any] | None = None,
    sections: Sequence[tuple[str, str]] = (),
    seconds: float | None = None,
) -> None:
    """Write the report of a run; `log` are the rows of log.jsonl, `sections` the task's own parts (heading, HTML).

    `data` are its sets: name, num_used, and left_out by reason.
    """
    parts = [
        ("Curves", _draw_charts(log) or Markup("<p>Nothing is logged yet.</p>\n")),
        ("Scores", _render_scores(scores or {})),
        *sections,
        ("Data", _render_data(data)),
        ("How it was made", _render_config(config) + _render_versions(versions)),
    ]
    write_page(path, title, render("facts.html", facts=_facts(log, seconds, parameters)), parts)


def write_page(path: Path, title: str, header: Markup, parts: Sequence[tuple[str, str]]) -> None:
    """Write a page that loads nothing, of parts (heading, HTML); empty parts are left out."""
    files = {
        name: Markup((STATIC / name).read_text("utf-8"))
        for name in ("theme.css", "report.css", "report.js", "theme.js")
    }
    sections = [(heading, Markup(content)) for heading, content in parts]
    page = render("page.html", title=title, header=header, sections=sections, files=files)
    with replace_file(path) as draft:
        draft.write_bytes(page.encode("utf-8", "replace"))


def _facts(log: Log, seconds: float | None, parameters: int | None) -> list[tuple[str, str, str]]:
    """Return the figures of the header: a name, a value, and where or how it was measured."""
    steps, unit = _points(log, "step"), _unit(log)
    rates = _points(log, f"{unit}_per_second")
    facts = _best(log)
    if parameters is not None:
        facts.append(("parameters", f"{parameters:,}", ""))
    if steps:
        facts.append(("steps", f"{steps[-1][0]:,.0f}", ""))
    if seconds is not None:
        facts.append(("training time", _format_duration(seconds), ""))
    if rates:
        rate = float(f"{median(rate for _, rate in rates):.3g}")
        facts.append((f"{unit} a second", curves.format_number(rate), "median"))
    return facts


def _best(log: Log) -> list[tuple[str, str, str]]:
    """Return the best validation, if there was one: the score's name, its value and its step."""
    judged = [row for row in log if _is_number(row.get("score")) and _is_number(row.get("step"))]
    if not judged:
        return []
    row = max(judged, key=lambda row: (row["score"], -(row.get("valid_loss") or 0.0)))
    name = _find_judge(row)
    return [(f"best {name_of(name)} in validation", f"{row[name]:.2f}", f"step {row['step']:,}")]


def _find_judge(row: Mapping[str, Any]) -> str:
    """Return the name of the figure that a validation was judged by; the score is that figure, or its negative."""
    return next((key for key in row if key.startswith("valid_") and abs(row["score"]) == row[key]), "score")


def name_of(key: str) -> str:
    """Return a figure's name as people write it."""
    plain = key.removeprefix("valid_").removeprefix("num_")
    if plain.startswith("f1_"):  # of a kind of spans, which keeps its own spelling
        return f"F1 of {plain[3:]}"
    return NAMES.get(plain, plain.replace("_", " "))


def _unit(log: Log) -> str:
    """Return what the rate counts, such as tokens."""
    named = (key.removesuffix("_per_second") for row in log for key in row if key.endswith("_per_second"))
    return next(named, "tokens")


def _draw_charts(log: Log) -> Markup:
    loss = Line("training", _points(log, "loss"), is_noisy=True)
    judged = [key for key in dict.fromkeys(key for row in log for key in row) if key.startswith("valid_")]
    judge = next((_find_judge(row) for row in log if _is_number(row.get("score"))), None)
    scores = [
        Line(
            name_of(key), _points(log, key), best=("min" if key in LOWER_IS_BETTER else "max") if key == judge else None
        )
        for key in judged
        if key not in OTHER_SCALES
    ]
    unit = _unit(log)
    rates = Line(f"{unit} a second", _points(log, f"{unit}_per_second"), is_noisy=True)
    end = max((step for step, _ in _points(log, "step")), default=0.0)
    charts = [
        _draw_figure(
            "Loss",
            [loss, Line("validation", _validation_loss(log), best="min")],
            end,
            unit=f"nats a {unit[:-1]}",
        ),
        _draw_figure("Validation scores", scores, end, from_zero=True),
        _draw_figure("Learning rate", [Line("learning rate", _points(log, "learning_rate"))], end, from_zero=True),
        _draw_figure("Speed", [rates], end, from_zero=True),
    ]
    return Markup('<div class="charts">\n{}</div>\n').format(Markup().join(charts)) if any(charts) else Markup()


def _draw_figure(name: str, lines: Sequence[Line], end: float, *, unit: str = "", from_zero: bool = False) -> Markup:
    lines = [line for line in lines if line.points]
    said = "; ".join(_in_words(line) for line in lines)
    chart = curves.draw_chart(lines, label=f"{name}: {said}", x_label="step", x_end=end, from_zero=from_zero)
    if not chart:
        return Markup()
    return curves.draw_figure(name, chart, lines, said[:1].upper() + said[1:], unit=unit)


def _in_words(line: Line) -> str:
    first, last = line.points[0], line.points[-1]
    best = curves.best_point(line)
    peak = f", best {curves.format_number(best[1])} at step {best[0]:,.0f}" if best else ""
    return f"{line.name} from {curves.format_number(first[1])} to {curves.format_number(last[1])}{peak}"


def _points(log: Log, key: str) -> list[curves.Point]:
    """Return (step, value) of the rows that have both."""
    rows = [(row.get("step"), row.get(key)) for row in log]
    return sorted((float(step), float(value)) for step, value in rows if _is_number(step) and _is_number(value))


def _validation_loss(log: Log) -> list[curves.Point]:
    """Return the loss in validation; where only the perplexity was logged, its logarithm."""
    perplexities = _points(log, "valid_perplexity")
    return _points(log, "valid_loss") or [(step, math.log(value)) for step, value in perplexities if value > 0]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _render_scores(scores: Mapping[str, Any]) -> Markup:
    rows = list(_score_rows(scores))
    if not any(signature for *_, signature in rows):
        return render_table("Scores", ["Score", "Value"], rows, template="scores.html", is_signed=False)
    caption, head = "Scores, with what is needed to compare them", ["Score", "Value", "sacreBLEU signature"]
    return render_table(caption, head, rows, template="scores.html", is_signed=True)


def _score_rows(scores: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, str, str]]:
    """Give name, value and signature of each score; scores of several sets may be a mapping of mappings."""
    for key, value in scores.items():
        if isinstance(value, Mapping):
            yield from _score_rows(value, f"{of}{key} ")
        elif not key.endswith("_signature"):
            yield of + name_of(key), _format_value(value), str(scores.get(f"{key}_signature") or "")


def _format_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " to ".join(_format_value(part) for part in value)
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if _is_number(value) else str(value)


def render_lengths(buckets: Sequence[Bucket], score: str = "bleu") -> Markup:
    """Render a table of a score by source length, with bars."""
    most = max((value or 0.0 for *_, value in buckets), default=0.0) or 1.0
    name = name_of(score)
    head, caption = ["Source words", "Pairs", name], f"{name[0].upper()}{name[1:]} by source length"
    return render_table(caption, head, buckets, template="lengths.html", look="lengths", most=most)


def _render_data(data: Sequence[Mapping[str, Any]]) -> Markup:
    """Render a table of the sets: how many examples are used, and how many were left out and why."""

    def reasons(left_out: Mapping[str, int]) -> str:
        return ", ".join(f"{count:,} {reason}" for reason, count in left_out.items()) or "none"

    rows = [(one["name"].removeprefix("data."), f"{one['num_used']:,}", reasons(one["left_out"])) for one in data]
    return render_table("Examples of each set", ["Set", "Used", "Left out"], rows, template="named_rows.html")


def _render_config(config: Mapping[str, Any]) -> Markup:
    plain = json.loads(json.dumps(dict(config), default=str))  # paths and tuples have no YAML of their own
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return render("config.html", config=text) if plain else Markup()


def _render_versions(versions: Mapping[str, str]) -> Markup:
    rows = list(versions.items())
    return render_table("Versions", ["What", "Version"], rows, template="versions.html", look="versions")


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
