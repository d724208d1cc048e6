"""`saccade look`: where a model looked, drawn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from saccade.cli import bulk, terminal
from saccade.cli.bulk import BulkFlags
from saccade.cli.flags import RunFolder, collect_options, group_flags
from saccade.cli.looking import align, trust
from saccade.cli.looking.align import AlignJob
from saccade.cli.looking.show import LookOutput
from saccade.data.text import corpus
from saccade.errors import UserError
from saccade.inspection.align.links import SYMMETRIZERS
from saccade.inspection.draw.figure import PICTURES
from saccade.inspection.insight import Insight
from saccade.inspection.record import KINDS
from saccade.inspection.views.view import THROUGH_LAYERS, VIEWS, ViewChoice
from saccade.runs.load import load_run
from saccade.tasks.base import Predictor

WINDOW = 32  # texts that are looked at together
FITS = {  # what goes with each way of looking; the first is the plain one
    "": ("text", "--input", "--target", "--kind", "--view", "--layer", "--head", "--pieces", "--heads", "--draw"),
    "--trust": ("--trust", "text", "--input", "--target", "--layer", "--head", "--erase", "--draw"),
    "--align": (
        "--align",
        "--input",
        "--target",
        "--gold",
        "--reverse",
        "--symmetrize",
        "--output",
        "--on",
        "--workers",
    ),
}


@dataclass(frozen=True)
class ViewFlags:
    """Flags that say which weights to show, and how."""

    kind: Annotated[
        str | None, typer.Option(help=f"The attention to show: {', '.join(KINDS)}. (default: the first)")
    ] = None
    view: Annotated[str | None, typer.Option(help=f"How to show it: {', '.join(VIEWS)}. (default: weights)")] = None
    layer: Annotated[
        int | None, typer.Option(help="Layer, from 0. (default: of the head that aligns best, or the last)")
    ] = None
    head: Annotated[int | None, typer.Option(help="Head, from 0. (default: the mean of the layer)")] = None
    pieces: Annotated[bool, typer.Option("--pieces", help="Show pieces of the tokenizer, not words.")] = False
    heads: Annotated[bool, typer.Option("--heads", help="Print a table of what each head does, over all texts.")] = (
        False
    )

    @property
    def choice(self) -> ViewChoice:
        return ViewChoice(self.view or "weights", self.kind, self.layer, self.head)


@dataclass(frozen=True)
class TrustFlags:
    """Flags that test the attention."""

    trust: Annotated[bool, typer.Option("--trust", help="Test whether the attention explains the answers.")] = False
    erase: Annotated[
        str | None, typer.Option(help="With --trust: delete words, or replace them (unknown). (default: delete)")
    ] = None


@dataclass(frozen=True)
class AlignFlags:
    """Flags that align words."""

    align: Annotated[
        bool, typer.Option("--align", help="Write the word alignments of two files, or of pairs in one.")
    ] = False
    gold: Annotated[Path | None, typer.Option(help="With --align: gold links; finds and stores the best head.")] = None
    reverse: Annotated[Path | None, typer.Option(help="With --align: a run of the opposite direction.")] = None
    symmetrize: Annotated[str | None, typer.Option(help=f"With --reverse, how to join: {', '.join(SYMMETRIZERS)}.")] = (
        None
    )
    output: Annotated[
        str | None,
        typer.Option(help="With --align: the file to write. (default: standard output) With --on: a folder."),
    ] = None


@group_flags
def look(
    model: RunFolder,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts, or picture files.")] = None,
    read: Annotated[
        str | None, typer.Option("--input", help="A file of texts, line by line, instead of texts here.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Read this output instead of the model's own; with --input, a file of outputs.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--draw", help="Write a PNG, SVG or PDF (with --heads all heads), or an HTML page.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each text, with every layer and head.")
    ] = False,
    *,
    view: ViewFlags,
    trusting: TrustFlags,
    aligning: AlignFlags,
    many: BulkFlags,
) -> None:
    """Show the attention of a model: the words, or the parts of a picture, that it read."""
    given = {"text": texts, "--input": read, "--target": target, "--draw": picture}
    flags = {f"--{name}": value for name, value in collect_options(view, trusting, aligning, many).items()}
    source = None if read is None else Path(read)
    _refuse_what_does_not_fit({**given, **flags}, "--align" if aligning.align else "--trust" if trusting.trust else "")
    if aligning.align:
        other = None if target is None else Path(target)
        with terminal.quiet():
            job = AlignJob(source, other, aligning.gold, aligning.reverse, aligning.symmetrize, as_json=as_json)
            if many.on is not None:
                align.run_many(model, job, (read, target), aligning.output, many)
                return
            bulk.refuse_without(many, None)
            written = None if aligning.output is None else Path(aligning.output)
            align.run(model, replace(job, output=written), Console())
    elif trusting.trust:
        asked = trust.TrustRequest(texts or [], source, target, view.layer, view.head, trusting.erase or "delete")
        trust.run(model, asked, picture=picture, as_json=as_json)
    else:
        request = LookOutput(view.choice, view.pieces, picture, as_json, is_one=len(texts or ()) == 1)
        _check(request, flags)
        _show(model, request, flags, texts, source, target)


def _show(
    model: Path,
    request: LookOutput,
    flags: dict[str, Any],
    texts: list[str] | None,
    source: Path | None,
    target: str | None,
) -> None:
    predictor: Predictor = load_run(model)
    options = _options(predictor, request, target, flags)
    with terminal.quiet():
        inputs = _inputs(predictor, texts, source)
        found = _look_at(predictor, inputs, options, targets=_targets(predictor, target, texts))
        if "--heads" in flags:
            request.heads(found)
        elif request.is_page:
            request.page(found, title=model.resolve().name)
        else:
            request.each(found)


def _refuse_what_does_not_fit(given: dict[str, Any], way: str) -> None:
    for flag, value in given.items():
        if value is not None and flag not in FITS[way]:
            others = [other for other, fitting in FITS.items() if flag in fitting and other]
            why = f"with {way}, which has no use for it" if way else f"without {' or '.join(others)}"
            raise UserError(f"{flag}: given {why}")


def _check(request: LookOutput, flags: dict[str, Any]) -> None:
    """Refuse flags that would have no effect."""
    request.view.check()
    named, heads = [flag for flag in flags if flag not in ("--kind", "--heads")], "--heads" in flags
    if request.is_page:
        if heads:
            raise UserError("--heads: given with an HTML page, which has them all")
        return  # the others say how the page opens
    if heads:
        for flag in (flag for flag in named if flag != "--pieces" or request.picture is None):
            raise UserError(f"{flag}: given with --heads, which is about every head, by pieces")
    elif request.as_json and request.picture is None:
        for flag in (flag for flag in named if flag != "--view" or flags[flag] not in (*THROUGH_LAYERS, "norms")):
            raise UserError(f"{flag}: given with --json, which holds every layer and head, by pieces and words")


def _inputs(predictor: Predictor, texts: list[str] | None, source: Path | None) -> Iterable[Any]:
    if texts and source is not None:
        raise UserError("--input: given with texts; allowed: one of them")
    if not texts and source is None:
        raise UserError("text: none given; saccade look RUN 'a text' ..., or --input FILE")
    if texts:
        return texts
    lines = iter(predictor.read(source))
    for first in lines:
        return itertools.chain([first], lines)
    raise UserError(f"{source}: it is empty; there is nothing to look at")


def _options(predictor: Predictor, request: LookOutput, target: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of the predictor's own `look`; what its task has no use for is refused."""
    allowed = predictor.traits.look_options
    useless = [] if "kinds" in allowed else list(flags)
    if target is not None and "targets" not in allowed:
        useless.append("--target")
    for flag in useless:
        raise UserError(f"{flag}: given, but this model's task has no use for it")
    if "kinds" not in allowed:
        return {}
    if request.picture is not None and not request.is_page and request.picture.suffix not in PICTURES:
        raise UserError(f"{request.picture}: a picture ends in {', '.join(PICTURES)}, a page in .html")
    view, is_page = request.view, request.is_page
    norms = {"norms": is_page or view.name == "norms"}
    if is_page or view.name in THROUGH_LAYERS:
        return {**norms, "kinds": predictor.traits.kinds}
    return norms if view.kind is None else {**norms, "kinds": (view.kind,)}


def _targets(predictor: Predictor, target: str | None, texts: list[str] | None) -> Iterator[str] | None:
    """Return the targets: of texts the output itself, of a file of texts the lines of another."""
    if target is None:
        return None
    return iter([corpus.clean(target)] * len(texts)) if texts else predictor.read_targets(Path(target))


def _look_at(
    predictor: Predictor, texts: Iterable[Any], options: dict[str, Any], *, targets: Iterator[str] | None = None
) -> Iterator[Insight]:
    """Look in memory that doesn't grow with the number of texts, unless each is read with those before it."""
    rest, size = iter(texts), None if predictor.traits.context else WINDOW
    number = 0
    while part := list(itertools.islice(rest, size)):
        read = {} if targets is None else {"targets": list(itertools.islice(targets, len(part)))}
        if targets is not None and len(read["targets"]) < len(part):
            _refuse_short("targets", number + len(read["targets"]))
        yield from predictor.look(part, **read, **options)
        number += len(part)
    if targets is not None and next(targets, None) is not None:
        _refuse_short("texts", number)


def _refuse_short(side: str, number: int) -> NoReturn:
    raise UserError(f"--target: there must be one for each text, but the {side} end after {number:,}")
