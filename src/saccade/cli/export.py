"""`saccade export`: a run for another engine, with a proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.cli import terminal
from saccade.cli.flags import RunFolder, Threads, set_threads
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs.load import load_run
from saccade.tasks import TASKS
from saccade.tasks.base import Predictor, ScoredSet


def export(
    model: RunFolder,
    name: Annotated[str, typer.Argument(metavar="FORMAT", help="ctranslate2, huggingface, onnx or argos.")],
    out: Annotated[Path, typer.Argument(help="The folder to write, or the .argosmodel file; it must not exist yet.")],
    quantization: Annotated[
        str, typer.Option(help="How numbers are stored: float32, or int8 (a quarter of the bytes).")
    ] = "float32",
    source: Annotated[
        Path | None,
        typer.Option("--input", help="Sources, or labelled examples, to prove it with. (default: the run's test set)"),
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Their targets, if --input does not hold both.")] = None,
    most: Annotated[
        int, typer.Option("--sentences", min=1, help="Prove it with the first pairs or examples of the set.")
    ] = 1000,
    threads: Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the proof as JSON.")] = False,
) -> None:
    """Write a model for another engine, and prove that it answers the same there."""
    from saccade.export import write  # the table of formats is read when it is needed

    if target is not None and source is None:
        raise UserError("--target: given without --input")
    set_threads(threads)
    predictor: Predictor = load_run(model, device="cpu")
    portable = predictor.portable()
    console = Console(stderr=True)
    with terminal.quiet(), console.status("") as status:
        proof = write.export(
            name,
            portable,
            out,
            quantization=quantization,
            scored=_scored_set(model, predictor, source, target),
            most=most,
            say=lambda what: status.update(f"{what} ..."),
        )
    typer.echo(json.dumps(proof.plain()) if as_json else "\n".join(proof.lines()))
    if not as_json:
        typer.echo(f"The model is in {out}, its proof in {write.find_proof(out)}.")
    for missed in proof.missed:
        typer.echo(f"saccade: {out}: {missed}", err=True)
    if proof.missed:
        raise typer.Exit(1)


def _scored_set(model: Path, predictor: Predictor, source: Path | None, target: Path | None) -> ScoredSet:
    if source is not None:
        return predictor.read_scored(source, target)
    config = config_file.load_config(model / "config.yaml")
    find = TASKS[config.task].scored_set
    assert find is not None  # of what is portable
    return find(config, predictor)
