"""Proofs, for `export` and `import`: made while their steps are shown, and printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from saccade.cli import terminal
from saccade.cli.flags import set_threads
from saccade.errors import UserError
from saccade.export.proof import Proof, Say

ProofTarget = Annotated[Path | None, typer.Option(help="Their targets, if --input does not hold both.")]
ProofMinutes = Annotated[
    float, typer.Option("--minutes", min=0, help="Compare the outputs of each beam for so many minutes, then stop.")
]
ProofAsJson = Annotated[bool, typer.Option("--json", help="Print the proof as JSON.")]


def check(source: Path | None, target: Path | None) -> None:
    """Refuse targets without sources."""
    if target is not None and source is None:
        raise UserError("--target: given without --input")


def make(prove: Callable[[Say], Proof], threads: int | None) -> Proof:
    """Prove with so many threads, and show what is being done."""
    set_threads(threads)
    with terminal.quiet(), terminal.show_steps() as say:
        return prove(say)


def print_proof(proof: Proof, lines: Sequence[str], out: Path, *, as_json: bool) -> None:
    """Print what was found; a bound that was missed ends the command with exit code 1."""
    typer.echo(json.dumps(proof.plain()) if as_json else "\n".join(lines))
    for missed in proof.missed:
        typer.echo(f"saccade: {out}: {missed}", err=True)
    if proof.missed:
        raise typer.Exit(1)
