"""`saccade look`: where a model looked, drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from saccade.config import terminal
from saccade.config.predictors import load_run
from saccade.data import corpus
from saccade.data.mistakes import Mistake
from saccade.inspection import draw
from saccade.inspection.insight import Head, Insight, merged
from saccade.inspection.record import KINDS
from saccade.inspection.word_alignment import SYMMETRIZERS
from saccade.look import align_command
from saccade.look.align_command import Job

RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]


def look(
    model: RunFolder,
    texts: Annotated[list[str] | None, typer.Argument(help="What to look at: texts, or picture files.")] = None,
    target: Annotated[str | None, typer.Option(help="Look while it reads this output; with --align, a file.")] = None,
    kind: Annotated[str | None, typer.Option(help=f"Of attention: {', '.join(KINDS)}. [default: the first]")] = None,
    layer: Annotated[int | None, typer.Option(help="[default: the head that aligns best, else the last layer]")] = None,
    head: Annotated[int | None, typer.Option(help="[default: the mean of the layer]")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="As the model cut them, not merged into words.")] = False,
    is_aligning: Annotated[
        bool, typer.Option("--align", help="Write word alignments of --input and --target.")
    ] = False,
    source: Annotated[Path | None, typer.Option("--input", help="With --align: source texts, or both sides.")] = None,
    gold: Annotated[Path | None, typer.Option(help="Gold alignments: find the head that aligns best, keep it.")] = None,
    opposite: Annotated[Path | None, typer.Option("--reverse", help="With --align: a run back, to agree with.")] = None,
    symmetrize: Annotated[str | None, typer.Option(help=f"How to join both: {', '.join(SYMMETRIZERS)}.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="With --align: where to write. [default: standard output]")
    ] = None,
    picture: Annotated[Path | None, typer.Option("--draw", help="Draw it to a PNG, SVG or PDF.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a text, with every layer and head.")] = False,
) -> None:
    """Show where a model looked: which words an output word read, what a label weighed, where a caption looked."""
    asked = {"--input": source, "--gold": gold, "--reverse": opposite, "--symmetrize": symmetrize, "--output": output}
    if is_aligning:
        others = {
            "text": texts,
            "--kind": kind,
            "--layer": layer,
            "--head": head,
            "--pieces": pieces,
            "--draw": picture,
        }
        _refuse(others, "with --align, which has no use for it")
        to_align = None if target is None else Path(target)
        with terminal.quiet():
            align_command.run(model, Job(source, to_align, gold, opposite, symmetrize, output, as_json), Console())
        return
    _refuse(asked, "without --align")
    if not texts:
        raise Mistake("text: none given; saccade look RUN 'a text' ...")
    if picture is not None:
        draw.check_ending(picture)
    predictor, console = load_run(model), Console()
    given: dict[str, Any] = {} if target is None else {"targets": [corpus.clean(target)] * len(texts)}
    if kind is not None:
        given["kinds"] = (kind,)
    for number, seen in enumerate(predictor.look(texts, **given), 1):
        if as_json:
            typer.echo(json.dumps(seen.plain(), ensure_ascii=False))
            continue
        console.print(seen.answer.line(), highlight=False, soft_wrap=True)
        _show(seen, kind, layer, head, pieces, console)
        if picture is not None:
            _draw(seen, kind, layer, head, pieces, picture if len(texts) == 1 else _numbered(picture, number))


def _refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value not in (None, False):
            raise Mistake(f"{name}: given {why}")


def _numbered(path: Path, number: int) -> Path:
    return path.with_stem(f"{path.stem}-{number}")


def _chosen(seen: Insight, kind: str | None, layer: int | None, head: int | None, pieces: bool) -> Any:
    found = seen.map(kind)
    num_layers, num_heads = found.weight_LHTS.shape[:2]
    for name, value, count in (("layer", layer, num_layers), ("head", head, num_heads)):
        if value is not None and not -count <= value < count:
            raise Mistake(f"{name}: {value} given; allowed: 0 to {count - 1}, or -1 for the last")
    default = seen.aligning if layer is None and head is None and found is seen.maps.get("cross") else None
    weight_TS = (default or Head(-1 if layer is None else layer, head)).of(found.weight_LHTS)
    queries, keys = seen.sides[found.queries], seen.sides[found.keys]
    if pieces:
        return weight_TS, queries.pieces, keys.pieces
    return merged(weight_TS, queries, keys), queries.words, keys.words


def _show(seen: Insight, kind: str | None, layer: int | None, head: int | None, pieces: bool, console: Console) -> None:
    if seen.task in ("caption", "glimpse"):
        if hasattr(seen.answer, "show"):
            seen.answer.show(console)
        return
    weight_TS, queries, keys = _chosen(seen, kind, layer, head, pieces)
    console.print(draw.in_terminal(weight_TS, queries=queries, keys=keys, console=console))


def _draw(seen: Insight, kind: str | None, layer: int | None, head: int | None, pieces: bool, path: Path) -> None:
    if seen.task in ("caption", "glimpse"):
        seen.answer.draw(path)
        return
    weight_TS, queries, keys = _chosen(seen, kind, layer, head, pieces)
    draw.to_file(weight_TS, path, queries=queries, keys=keys, title=seen.answer.line())
