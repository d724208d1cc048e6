"""`saccade look --trust`: how far a run's attention may be trusted, in the terminal, as JSON or as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console

from saccade.cli import terminal
from saccade.errors import UserError
from saccade.inspection.insight import Head
from saccade.inspection.trust import panel as trust_panel
from saccade.inspection.trust.verdict import TrustFigures
from saccade.runs.load import load_run
from saccade.tasks.base import Predictor
from saccade.tasks.trust import trust


class TrustRequest(NamedTuple):
    """The arguments of a test of trust: texts, or files with a text (and an output, or a label) a line."""

    texts: Sequence[str]
    source: Path | None = None
    target: str | None = None  # of texts the output itself, of a file the name of another
    layer: int | None = None
    head: int | None = None
    erase: str = "delete"


def run(folder: Path, asked: TrustRequest, *, picture: Path | None, as_json: bool) -> None:
    """Test trust: the panel in the terminal or as JSON, and as a picture or page."""
    if picture is not None:
        trust_panel.check_ending(picture)
    if (asked.source is None) != bool(asked.texts):
        raise UserError("--trust: give either texts, or a file with one a line as --input")
    predictor: Predictor = load_run(folder)
    console = Console()
    with terminal.quiet():
        panel = _panel(predictor, asked, hidden=as_json)
        if as_json:
            typer.echo(json.dumps(panel.plain(), ensure_ascii=False))
        else:
            console.print(trust_panel.in_terminal(panel, console=console))
        if picture is not None:
            what = f"{panel.num_texts:,} texts" if panel.alone is None else " ".join(panel.alone.words)
            trust_panel.to_file(panel, picture, title=f"{folder.name}: {what}")


def _panel(predictor: Predictor, asked: TrustRequest, *, hidden: bool) -> TrustFigures:
    layer = -1 if asked.layer is None else asked.layer
    head = None if asked.layer is None and asked.head is None else Head(layer, asked.head)
    texts, targets, total = _read(predictor, asked)
    watch = partial(terminal.count_outputs, total=total, hidden=hidden or asked.source is None)
    return trust(predictor, texts, targets=targets, head=head, erase=asked.erase, watch=watch)


def _read(predictor: Predictor, asked: TrustRequest) -> tuple[Iterable[Any], Iterable[str] | None, int | None]:
    """Return the texts, their targets if any, and how many there are where that is known."""
    if asked.source is None:
        return asked.texts, None if asked.target is None else [asked.target] * len(asked.texts), len(asked.texts)
    predictor.trust_test()  # what can't be tested says so before anything is read
    targets = None if asked.target is None else predictor.read_targets(Path(asked.target))
    return predictor.read(asked.source), targets, terminal.num_lines(asked.source)
