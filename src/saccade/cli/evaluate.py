"""`saccade evaluate`: a model on a test set."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from saccade.api import list_test_files
from saccade.bulk.shards import fetch, find_inputs, match_shards
from saccade.bulk.work import PredictWork
from saccade.cli import bulk, terminal
from saccade.cli.bulk import BulkFlags, refuse_with_many
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
    collect_options,
    group_flags,
    refuse_others,
    set_threads,
)
from saccade.data.text.corpus import read_raw_lines
from saccade.errors import UserError
from saccade.export.choice import EngineChoice
from saccade.inspection.draw import heatmap
from saccade.runs.check import refuse_changed
from saccade.runs.load import load_run
from saccade.tasks.base import Portable, Predictor


@dataclass(frozen=True)
class ScoringFlags:
    """Flags that say how outputs are made and scored."""

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
    named: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILES]...",
            help="The test set: one file, or a source and a target file. (default: the run's data.test)",
        ),
    ] = None,
    output: Annotated[str | None, typer.Option(help="With --on: the folder for the outputs.")] = None,
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
    many: BulkFlags,
) -> None:
    """Score a model on a test set: BLEU and chrF, exact matches, accuracy, F1, word errors."""
    if plot is not None:
        heatmap.check_ending(plot)
    options, choice = collect_options(scoring), EngineChoice(engine, quantization, shortlist)
    runs, files = (model, *(ensemble or ())), [*map(Path, named or ())]
    if many.on is not None:
        refuse_with_many({"--plot": plot, "--confidence": scoring.confidence or None, "--tokenize": scoring.tokenize})
        work = bulk.predicting(runs, choice, device, threads, glossary, options, as_json=False)
        _evaluate_many(work, named or [], output, many, as_json=as_json)
        return
    bulk.refuse_without(many, output)
    set_threads(threads)
    predictor: Predictor = load_run(*runs, device=device, engine=choice)
    if glossary is not None:
        predictor = predictor.with_glossary(glossary)
    refuse_others(options, predictor.traits.evaluate_options)
    if not files and predictor.traits.needs_files:
        files = list_test_files(model)
        typer.echo(f"The run's own test set: {' '.join(map(str, files))}", err=True)
    refuse_changed(files, model)
    with terminal.quiet():
        watch = functools.partial(terminal.count_outputs, hidden=as_json)
        found = predictor.evaluate(files or [], watch=watch, **options)
    typer.echo(json.dumps(dict(found.scores)) if as_json else "\n".join(found.lines))
    if plot is not None:
        if found.draw is None:
            raise UserError("--plot: there is nothing to draw for this model's task")
        found.draw(plot)


def _evaluate_many(
    work: PredictWork, named: Sequence[str], output: str | None, flags: BulkFlags, *, as_json: bool
) -> None:
    """Answer many files, and score all outputs together."""
    if len(named) != 2:
        raise UserError(f"files: {len(named)} given with --on; wanted: those of the sources, and those of the targets")
    execute, predictor = bulk.choose_executor(flags, work.threads, work.device), work.load()
    refuse_others(dict(work.options), predictor.traits.evaluate_options)
    portable = predictor.portable()
    if not isinstance(portable, Portable) or predictor.traits.reads != "text":
        raise UserError(f"--on: {flags.on} given, but only outputs of text to text are scored together")
    sources, targets = find_inputs("sources", named[0]), find_inputs("targets", named[1])
    shards = match_shards([sources, targets], bulk.need_output(output))
    bulk.run(work, {"sources": named[0]}, output, execute)
    outputs, references = list[str](), list[str]()
    for shard in shards:
        with fetch((shard.output, shard.inputs[1])) as (own, other):
            outputs += read_raw_lines(own)
            references += predictor.read_targets(other)
        if len(outputs) != len(references):
            raise UserError(f"{shard.inputs[1]}: it has another number of lines than {shard.inputs[0]}")
    scores = {**portable.score(outputs, references), "num_pairs": len(outputs)}
    typer.echo(json.dumps(scores) if as_json else "\n".join(f"{name} {value:.2f}" for name, value in scores.items()))
