"""`saccade demo`: a small model, taught and looked at in two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.lab import demo as demonstration


def demo(
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = demonstration.STEPS,
    sentences: Annotated[int, typer.Option(min=2000, help="To learn from.")] = demonstration.SENTENCES,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Another seed, another run.")] = 1,
) -> None:
    """Teach a small Transformer a phrasebook, English to French, and see what it looks at (about two minutes)."""
    console = Console()
    try:
        demonstration.run(out=out, steps=steps, sentences=sentences, seed=seed, console=console)
    except KeyboardInterrupt:
        console.print("\nInterrupted. The same command goes on where it was.")
        raise typer.Exit(130) from None
