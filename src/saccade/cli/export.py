"""`saccade export`: a run for another engine, with a proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli import proof
from saccade.cli.flags import RunFolder, Threads
from saccade.cli.proof import ProofAsJson, ProofMinutes, ProofTarget
from saccade.export.proof import MINUTES, Proof, Say
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
    target: ProofTarget = None,
    most: Annotated[
        int, typer.Option("--sentences", min=1, help="Prove it with the first pairs or examples of the set.")
    ] = 1000,
    minutes: ProofMinutes = MINUTES,
    threads: Threads = None,
    as_json: ProofAsJson = False,
) -> None:
    """Write a model for another engine, and prove that it answers the same there."""
    from saccade.export import write  # the table of formats is read when it is needed

    proof.check(source, target)

    def prove(say: Say) -> Proof:
        predictor: Predictor = load_run(model, device="cpu")
        portable = predictor.portable()  # refuses what no engine can run
        scored = _scored_set(model, predictor, source, target)
        return write.export(
            name, portable, out, quantization=quantization, scored=scored, most=most, minutes=minutes, say=say
        )

    found = proof.make(prove, threads)
    where = f"The model is in {out}, its proof in {write.find_proof(out)}."
    proof.print_proof(found, [*found.lines(), where], out, as_json=as_json)


def _scored_set(model: Path, predictor: Predictor, source: Path | None, target: Path | None) -> ScoredSet:
    if source is not None:
        return predictor.read_scored(source, target)
    config = config_file.load_config(model / "config.yaml")
    find = TASKS[config.task].scored_set
    assert find is not None  # of what is portable
    return find(config, predictor)
