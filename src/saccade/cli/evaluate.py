"""`saccade evaluate`: a model on a test set."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from saccade.api import list_test_files
from saccade.cli import terminal
from saccade.cli.flags import (
    Beam,
    Device,
    Engine,
    Ensemble,
    GlossaryFile,
    LengthPenalty,
    MaxLength,
    MaxLengthExtra,
    MaxLengthFactor,
    MaxRounds,
    NoRepeat,
    Placeholders,
    Quantization,
    RunFolder,
    ShortlistFile,
    Terms,
    Threads,
    group_flags,
    options_given,
    refuse_others,
    set_threads,
)
from saccade.errors import UserError
from saccade.export.choice import EngineChoice
from saccade.inspection.draw import heatmap
from saccade.runs.load import load_run
from saccade.tasks.base import Predictor


@dataclass(frozen=True)
class ScoringFlags:
    """How outputs are made and scored."""

    width: Beam = None
    length_penalty: LengthPenalty = None
    max_length: MaxLength = None
    max_length_factor: MaxLengthFactor = None
    max_length_extra: MaxLengthExtra = None
    max_rounds: MaxRounds = None
    no_repeat_ngram: NoRepeat = None
    placeholders: Placeholders = None
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Tell how far confidence is from the share of words that are right.")
    ] = False
    terms: Terms = None
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="Give every label with at least this probability.")
    ] = None
    tokenize: Annotated[
        str | None, typer.Option(help="sacreBLEU's tokenizer; none for tokenised text. (default: the run's)")
    ] = None


@group_flags
def evaluate(
    model: RunFolder,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="The test set: one file, or a source and a target file. (default: the run's data.test)"),
    ] = None,
    glossary: GlossaryFile = None,
    ensemble: Ensemble = None,
    threads: Threads = None,
    device: Device = None,
    engine: Engine = "auto",
    quantization: Quantization = "float32",
    shortlist: ShortlistFile = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the result to a PNG, SVG or PDF file, for example the score by length.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    scoring: ScoringFlags,
) -> None:
    """Score a model on a test set: BLEU and chrF, exact matches, accuracy, F1, word errors."""
    if plot is not None:
        heatmap.check_ending(plot)
    set_threads(threads)
    predictor: Predictor = load_run(
        model, *(ensemble or ()), device=device, engine=EngineChoice(engine, quantization, shortlist)
    )
    if glossary is not None:
        predictor = predictor.with_glossary(glossary)
    options = options_given(scoring)
    refuse_others(options, predictor.traits.evaluate_options)
    if not files and predictor.traits.needs_files:
        files = list_test_files(model)
        typer.echo(f"The run's own test set: {' '.join(map(str, files))}", err=True)
    with terminal.quiet():
        watch = functools.partial(terminal.count_outputs, hidden=as_json)
        found = predictor.evaluate(files or [], watch=watch, **options)
    typer.echo(json.dumps(dict(found.scores)) if as_json else "\n".join(found.lines))
    if plot is not None:
        if found.draw is None:
            raise UserError("--plot: there is nothing to draw for this model's task")
        found.draw(plot)
