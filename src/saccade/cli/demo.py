"""`saccade demo`: a small model, taught and looked at in two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.datasets.made.phrasebook import SENTENCES
from saccade.lab import demo as demonstration


def demo(
    out: Annotated[Path, typer.Option(help="The run folder.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Number of training steps.")] = demonstration.STEPS,
    sentences: Annotated[int, typer.Option(min=2000, help="Number of sentences to learn from.")] = SENTENCES,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the run.")] = 1,
) -> None:
    """Train a small Transformer on a phrasebook, English to French, and show what it reads (two minutes)."""
    console = Console()
    try:
        demonstration.run(out=out, steps=steps, sentences=sentences, seed=seed, console=console)
    except KeyboardInterrupt:
        console.print("\nInterrupted. The same command continues.")
        raise typer.Exit(130) from None
