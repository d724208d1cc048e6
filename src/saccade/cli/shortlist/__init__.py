"""`saccade shortlist`: which target tokens can stand for those of a source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import track

from saccade.cli import terminal
from saccade.cli.flags import RunFolder, Threads, set_threads
from saccade.errors import UserError
from saccade.runs.load import load_run
from saccade.tasks.base import Portable, Predictor


def shortlist(
    model: RunFolder,
    out: Annotated[Path, typer.Argument(help="The file to write.")],
    source: Annotated[Path, typer.Option("--input", help="Sources to learn from: those that the run was trained on.")],
    target: Annotated[Path | None, typer.Option(help="Their targets, line by line.")] = None,
    most: Annotated[int, typer.Option(min=1, help="Tokens that are kept for each token of a source.")] = 100,
    common: Annotated[int, typer.Option(min=0, help="Most frequent tokens, which are always allowed.")] = 200,
    threads: Threads = None,
) -> None:
    """Learn which tokens can stand for those of a source: the native engine is faster with them."""
    from saccade.export.native.shortlist import learn

    set_threads(threads)
    predictor: Predictor = load_run(model, device="cpu")
    portable = predictor.portable()
    if not isinstance(portable, Portable):
        raise UserError("shortlist: models of this task write no texts; allowed: text to text")
    pairs = list(predictor.read_scored(source, target).pairs)
    with terminal.quiet():
        found = learn(
            portable,
            pairs,
            most=most,
            common=common,
            watch=lambda batches: track(batches, "aligning", transient=True),
        )
    found.save(out)
    kept = len(found.target) / max(1, int((np.diff(found.offset_N) > 0).sum()))
    typer.echo(f"{len(pairs):,} pairs: {kept:.1f} tokens for each token of a source, and {len(found.common):,} for all")
    typer.echo(f"The shortlist is in {out}.")
