"""`saccade predict`: answers line by line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

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
from saccade.data.text import corpus
from saccade.errors import UserError
from saccade.export.choice import EngineChoice
from saccade.runs.load import load_run
from saccade.tasks.base import Predictor, Result
from saccade.tasks.cuts import CutCounts
from saccade.tasks.insisted import InsistedCounts
from saccade.tasks.unknown import UnknownCounts

if TYPE_CHECKING:
    from saccade.bulk.work import PredictWork


@dataclass(frozen=True)
class SearchFlags:
    """Flags that say how to search for outputs, and how long they may be."""

    width: Beam = None
    num_best: Annotated[int | None, typer.Option(min=1, help="Number of outputs for each line; needs --json.")] = None
    length_penalty: LengthPenalty = None
    min_length: Annotated[int | None, typer.Option(min=0, help="The fewest tokens of an output.")] = None
    max_length: MaxLength = None
    max_length_factor: MaxLengthFactor = None
    max_length_extra: MaxLengthExtra = None
    max_rounds: MaxRounds = None
    no_repeat_ngram: NoRepeat = None
    placeholders: Placeholders = None
    terms: Terms = None


@dataclass(frozen=True)
class SamplingFlags:
    """Flags for drawing outputs at random."""

    sample: Annotated[bool, typer.Option("--sample", help="Sample outputs instead of searching.")] = False
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature: below 1 sharpens, above 1 flattens. (default: 1)")
    ] = None
    top_k: Annotated[
        int | None, typer.Option(min=0, help="Sample from this number of most likely tokens (0: all).")
    ] = None
    top_p: Annotated[float | None, typer.Option(help="Sample from the fewest tokens with this total probability.")] = (
        None
    )
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the samples. (default: 1)")] = None


@dataclass(frozen=True)
class EvidenceFlags:
    """Flags that say what to show beside an answer."""

    attention: Annotated[bool, typer.Option("--attention", help="Draw the attention below each output.")] = False
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Tell how sure it is of each word and output, as fitted in training.")
    ] = False
    layer: Annotated[int | None, typer.Option(help="The decoder layer to show. (default: the last)")] = None
    head: Annotated[int | None, typer.Option(help="The head to show. (default: the mean of all)")] = None
    key_terms: Annotated[
        int | None, typer.Option(min=1, help="Show this number of words with the largest weights.")
    ] = None
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="Give every label with at least this probability.")
    ] = None
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Give the probability of every tag; --draw draws them.")
    ] = False


@dataclass(frozen=True)
class PictureFlags:
    """Flags that say where pictures of the answers go."""

    pictures: Annotated[
        Path | None, typer.Option("--draw", help="Write a picture of each output into this folder.")
    ] = None
    ending: Annotated[str, typer.Option(help="The kind of picture: .png, .svg or .gif.")] = ".png"

    def check(self) -> None:
        """Refuse an ending that nothing gets."""
        if self.ending != ".png" and self.pictures is None:
            raise UserError("--ending: given without --draw")

    def draw(self, result: Result, number: int) -> None:
        """Draw a result, if pictures are asked for."""
        if self.pictures is not None:
            result.draw(self.pictures / f"{number}{self.ending}")


@group_flags
def predict(
    model: RunFolder,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to answer, instead of a file.")] = None,
    given: Annotated[str | None, typer.Option("--input", help="The file to read. (default: standard input)")] = None,
    output: Annotated[str | None, typer.Option(help="With --on: the folder to write.")] = None,
    prefix: Annotated[Path | None, typer.Option(help="A file with the beginning of each output, line by line.")] = None,
    glossary: GlossaryFile = None,
    ensemble: Ensemble = None,
    threads: Threads = None,
    device: Device = None,
    engine: Engine = "auto",
    quantization: Quantization = "float32",
    shortlist: ShortlistFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, with scores.")] = False,
    as_written: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Print a text while it is written. (default: in a terminal)"),
    ] = None,
    *,
    search: SearchFlags,
    sampling: SamplingFlags,
    evidence: EvidenceFlags,
    pictures: PictureFlags,
    many: BulkFlags,
) -> None:
    """Answer each line or file of the input, in order."""
    if (search.num_best or 1) > 1 and not as_json:
        raise UserError("--num-best: more than one output a line needs --json")
    pictures.check()
    options, choice = collect_options(search, sampling, evidence), EngineChoice(engine, quantization, shortlist)
    if many.on is not None:
        refused = {"texts": texts, "--prefix": prefix, "--draw": pictures.pictures, "--stream": as_written}
        refuse_with_many({**refused, "--attention": evidence.attention or None})
        if given is None:
            raise UserError("--input: none given; with --on it names files")
        runs = (model, *(ensemble or ()))
        work = bulk.predicting(runs, choice, device, threads, glossary, options, as_json=as_json)
        _predict_many(work, given, output, many)
        return
    bulk.refuse_without(many, output)
    source = None if given is None else Path(given)
    if prefix is not None:
        options["prefixes"] = corpus.read_lines(prefix)
    set_threads(threads)
    predictor: Predictor = load_run(model, *(ensemble or ()), device=device, engine=choice)
    if glossary is not None:
        predictor = predictor.with_glossary(glossary)
    allowed = predictor.traits.predict_options
    refuse_others(options, allowed)
    if pictures.pictures is not None:
        options |= predictor.traits.evidence
    is_typed = source is None and not texts and sys.stdin.isatty()  # somebody waits for an answer to each line
    is_whole = [name for name, given in {"--json": as_json, "--attention": evidence.attention}.items() if given]
    streams = _choose_streaming(predictor, as_written, is_whole)
    if is_typed and "window" in allowed and not streams:
        options["window"] = 1
    cuts, unknown, insisted = CutCounts(), UnknownCounts(), InsistedCounts(predictor.traits.num_terms)
    console, in_folder = Console(), source is not None and source.is_dir()
    with terminal.quiet():
        inputs = _inputs(predictor, texts, source)
        answers = _follow(predictor, inputs, options) if streams else predictor.stream(inputs, **options)
        found = insisted.watch(unknown.watch(cuts.watch(answers)))
        watched: Iterator[Result] = terminal.count_outputs(
            found, terminal.num_lines(source), hidden=is_typed or sys.stdout.isatty()
        )
        for number, best in enumerate(watched, 1):
            pictures.draw(best, number)
            if not streams:
                typer.echo(json.dumps(best.plain(), ensure_ascii=False) if as_json else _line(best, in_folder))
            if (evidence.attention or evidence.confidence) and not as_json:
                best.show(console)
    for line in (*cuts.describe(), *unknown.describe(), *insisted.describe()):
        typer.echo(f"saccade: {line}", err=True)


def _predict_many(work: PredictWork, pattern: str | None, output: str | None, flags: BulkFlags) -> None:
    execute = bulk.choose_executor(flags, work.threads, work.device)
    traits = work.load().traits
    refuse_others(dict(work.options), traits.predict_options)
    if traits.reads != "text":
        raise UserError(
            f"--on: {flags.on} given, but this model reads a {traits.reads}; allowed: models that read text"
        )
    bulk.run(work, {"--input": pattern}, output, execute)


def _inputs(predictor: Predictor, texts: list[str] | None, source: Path | None) -> Iterable[Any]:
    """Return the texts of the command line, or the inputs of a file."""
    if not texts:
        return predictor.read(source)
    if source is not None:
        raise UserError("--input: given with texts; allowed: one of them")
    if predictor.traits.reads != "text":
        raise UserError(f"text: {texts[0][:40]!r} given, but this model reads a {predictor.traits.reads}; give --input")
    return texts


def _choose_streaming(predictor: Predictor, wanted: bool | None, is_whole: list[str]) -> bool:
    """Tell whether texts are printed while they are written; that must be possible, if it is wanted."""
    able = predictor.traits.streams
    if wanted and not able:
        raise UserError("--stream: given, but this model's task answers all at once")
    if wanted and is_whole:
        raise UserError(f"--stream: given with {is_whole[0]}, which needs whole answers")
    return able and not is_whole and (sys.stdout.isatty() if wanted is None else wanted)


def _follow(predictor: Predictor, inputs: Iterable[Any], options: dict[str, Any]) -> Iterator[Result]:
    """Answer inputs one by one; print each with its answer, part by part."""
    for given in inputs:
        typer.echo(given, nl=False)
        yield predictor.follow(given, lambda part: typer.echo(part, nl=False), **options)
        typer.echo()


def _line(result: Result, in_folder: bool) -> str:
    """Return a result's line; of a folder's files, with the file's name and a tab before it."""
    name, line = getattr(result, "name", "") if in_folder else "", result.line()
    return f"{name}\t{line}" if name and not line.startswith(f"{name}\t") else line
