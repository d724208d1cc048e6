"""A run as one page, `report.html`: it opens anywhere, offline, and loads nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import Any, TypeGuard

import yaml

from saccade.files import replace_file
from saccade.inspection.pages import curves
from saccade.inspection.pages.curves import Line
from saccade.inspection.pages.samples import table

NAMES = {"bleu": "BLEU", "chrf": "chrF", "f1": "F1", "macro_f1": "macro F1", "wer": "word error"} | {
    f"bleu{order}": f"BLEU-{order}" for order in range(1, 5)
}
NOTHING_LOADED = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

LOWER_IS_BETTER = ("valid_wer",)
OTHER_SCALES = ("valid_loss", "valid_perplexity")

Log = Sequence[Mapping[str, Any]]
Bucket = tuple[str, int, float | None]  # source lengths, how many sentences have them, their BLEU


def write(
    path: Path,
    *,
    title: str,
    config: Mapping[str, Any],
    versions: Mapping[str, str],
    log: Log,
    scores: Mapping[str, Any] | None = None,
    sections: Sequence[tuple[str, str]] = (),
    seconds: float | None = None,
) -> None:
    """Write the page. `log` are the rows of log.jsonl; what a row lacks is left out of the curves.

    `sections` are the task's own parts, as (heading, HTML).
    """
    parts = [
        ("Curves", _charts(log) or "<p>Nothing is logged yet.</p>"),
        ("Scores", _scores(scores or {})),
        *sections,
        ("How it was made", _config(config) + _versions(versions)),
    ]
    write_page(path, title, _header(title, log, seconds), parts)


def write_page(path: Path, title: str, header: str, parts: Sequence[tuple[str, str]]) -> None:
    """A page that loads nothing, of parts (heading, HTML); empty ones are left out."""
    page = _page(title, header, "".join(_section(*part) for part in parts))
    with replace_file(path) as draft:
        draft.write_bytes(page.encode("utf-8", "replace"))


def _page(title: str, header: str, body: str) -> str:
    style, script = (Path(__file__).with_name(f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{NOTHING_LOADED}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
{header}
<main>
{body}</main>
<script>
{script}</script>
</body>
</html>
"""


def _section(name: str, content: str) -> str:
    return f"<section>\n<h2>{name}</h2>\n{content}</section>\n" if content else ""


def _header(title: str, log: Log, seconds: float | None) -> str:
    steps, unit = _points(log, "step"), _unit(log)
    rates = _points(log, f"{unit}_per_second")
    facts = _best(log)
    if steps:
        facts.append(("steps", f"{steps[-1][0]:,.0f}", ""))
    if seconds is not None:
        facts.append(("training time", _duration(seconds), ""))
    if rates:
        facts.append((f"{unit} a second", curves.shown(float(f"{median(rate for _, rate in rates):.3g}")), "median"))
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)} <small>{escape(where)}</small></dd></div>"
        for name, value, where in facts
    )
    return f'<header><h1 dir="auto">{escape(title)}</h1>\n' + (f"<dl>{cells}</dl>" if cells else "") + "</header>"


def _best(log: Log) -> list[tuple[str, str, str]]:
    """The best validation, if there was one: the name of what was judged by, its value, and where."""
    judged = [row for row in log if _is_number(row.get("score")) and _is_number(row.get("step"))]
    if not judged:
        return []
    row = max(judged, key=lambda row: row["score"])
    name = next((key for key in row if key.startswith("valid_") and abs(row["score"]) == row[key]), "score")
    return [(f"best {name_of(name)} in validation", f"{row[name]:.2f}", f"step {row['step']:,}")]


def name_of(key: str) -> str:
    """A figure's name as people write it."""
    plain = key.removeprefix("valid_").removeprefix("num_")
    return NAMES.get(plain, plain.replace("_", " "))


def _unit(log: Log) -> str:
    """What the rate counts."""
    named = (key.removesuffix("_per_second") for row in log for key in row if key.endswith("_per_second"))
    return next(named, "tokens")


def _charts(log: Log) -> str:
    loss = Line("training", _points(log, "loss"), is_noisy=True)
    judged = [key for key in dict.fromkeys(key for row in log for key in row) if key.startswith("valid_")]
    scores = [
        Line(name_of(key), _points(log, key), best="min" if key in LOWER_IS_BETTER else "max")
        for key in judged
        if key not in OTHER_SCALES
    ]
    unit = _unit(log)
    rates = Line(f"{unit} a second", _points(log, f"{unit}_per_second"), is_noisy=True)
    end = max((step for step, _ in _points(log, "step")), default=0.0)
    charts = [
        _figure(
            "Loss",
            [loss, Line("validation", _validation_loss(log), best="min")],
            end,
            unit=f"nats a {unit[:-1]}",
        ),
        _figure("Validation scores", scores, end, from_zero=True),
        _figure("Learning rate", [Line("learning rate", _points(log, "learning_rate"))], end, from_zero=True),
        _figure("Speed", [rates], end, from_zero=True),
    ]
    return f'<div class="charts">\n{"".join(charts)}</div>\n' if any(charts) else ""


def _figure(name: str, lines: Sequence[Line], end: float, *, unit: str = "", from_zero: bool = False) -> str:
    lines = [line for line in lines if line.points]
    said = "; ".join(_in_words(line) for line in lines)
    picture = curves.svg(lines, label=f"{name}: {said}", x_label="step", x_end=end, from_zero=from_zero)
    if not picture:
        return ""
    heading = f"<h3>{name}{f' <small>{unit}</small>' if unit else ''}</h3>"
    return (
        f"<figure>{heading}\n{picture}\n{curves.legend(lines)}"
        f'<figcaption class="readout" aria-live="polite">{escape(said[:1].upper() + said[1:])}</figcaption></figure>\n'
    )


def _in_words(line: Line) -> str:
    first, last = line.points[0], line.points[-1]
    best = curves.best_of(line)
    peak = f", best {curves.shown(best[1])} at step {best[0]:,.0f}" if best else ""
    return f"{line.name} from {curves.shown(first[1])} to {curves.shown(last[1])}{peak}"


def _points(log: Log, key: str) -> list[curves.Point]:
    """(step, value) of the rows that have both."""
    rows = [(row.get("step"), row.get(key)) for row in log]
    return sorted((float(step), float(value)) for step, value in rows if _is_number(step) and _is_number(value))


def _validation_loss(log: Log) -> list[curves.Point]:
    """Where only the perplexity was logged, its logarithm."""
    perplexities = _points(log, "valid_perplexity")
    return _points(log, "valid_loss") or [(step, math.log(value)) for step, value in perplexities if value > 0]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _scores(scores: Mapping[str, Any]) -> str:
    found = list(_score_rows(scores))
    is_signed = any(signature for *_, signature in found)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="number">{escape(value)}</td>'
        + (f"<td><code>{escape(signature).replace('|', '|<wbr>')}</code></td>" if is_signed else "")
        + "</tr>\n"
        for name, value, signature in found
    )
    head = '<th scope="col">Score</th><th scope="col">Value</th>'
    if not is_signed:
        return table("Scores", f"<tr>{head}</tr>", rows)
    signed = '<th scope="col">sacreBLEU signature</th>'
    return table("Scores, with what is needed to compare them", f"<tr>{head}{signed}</tr>", rows)


def _score_rows(scores: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, value, signature; scores of several sets may be given as a mapping of mappings."""
    for key, value in scores.items():
        if isinstance(value, Mapping):
            yield from _score_rows(value, f"{of}{key} ")
        elif not key.endswith("_signature"):
            yield of + name_of(key), _value(value), str(scores.get(f"{key}_signature") or "")


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " to ".join(_value(part) for part in value)
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if _is_number(value) else str(value)


def by_length(buckets: Sequence[Bucket]) -> str:
    """A table of BLEU by source length."""
    most = max((bleu or 0.0 for *_, bleu in buckets), default=0.0) or 1.0
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td class="number">{count:,}</td>'
        + (
            "<td>–</td>"
            if bleu is None
            else f'<td><span class="bar" style="--w:{bleu / most:.3f}">{bleu:.1f}</span></td>'
        )
        + "</tr>\n"
        for label, count, bleu in buckets
    )
    head = '<tr><th scope="col">Source words</th><th scope="col">Sentences</th><th scope="col">BLEU</th></tr>'
    return table("BLEU by source length", head, rows, look="lengths")


def _config(config: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps(dict(config), default=str))  # paths and tuples have no YAML of their own
    text = escape(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
    summary = "<summary>The filled-in config</summary>"
    return f'<details>{summary}\n<pre tabindex="0"><code>{text}</code></pre></details>\n' if plain else ""


def _versions(versions: Mapping[str, str]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(version))}</td></tr>\n'
        for name, version in versions.items()
    )
    return table("Versions", '<tr><th scope="col">What</th><th scope="col">Version</th></tr>', rows, look="versions")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
