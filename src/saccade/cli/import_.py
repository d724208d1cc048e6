"""`saccade import`: a model of another toolkit as a run, with a proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli import proof
from saccade.cli.flags import Threads
from saccade.cli.proof import ProofAsJson, ProofMinutes, ProofTarget
from saccade.errors import UserError
from saccade.export.proof import MINUTES, Proof, Say
from saccade.tasks.base import ScoredSet


def import_(
    folder: Annotated[
        Path,
        typer.Argument(help="A folder of Hugging Face (Marian, M2M100, NLLB, Pegasus), or an export to CTranslate2."),
    ],
    run: Annotated[Path, typer.Argument(help="The run to write; it must not exist yet.")],
    source: Annotated[
        Path | None, typer.Option("--input", help="Sources to prove it with. (default: texts of drawn pieces)")
    ] = None,
    target: ProofTarget = None,
    languages: Annotated[
        str | None, typer.Option(help="Of a model for many languages: its codes of source and target, de,en.")
    ] = None,
    most: Annotated[int, typer.Option("--sentences", min=1, help="Prove it with so many pairs.")] = 50,
    minutes: ProofMinutes = MINUTES,
    threads: Threads = None,
    as_json: ProofAsJson = False,
) -> None:
    """Make a run of a model of another toolkit, and prove that it answers the same here."""
    from saccade.imports import write

    proof.check(source, target)

    def prove(say: Say) -> Proof:
        codes, scored = _split_codes(languages), None if source is None else _read_set(source, target)
        return write.import_folder(folder, run, languages=codes, scored=scored, most=most, minutes=minutes, say=say)

    found = proof.make(prove, threads)
    where = f"The run is in {run}, its proof in {run / write.PROOF}."
    proof.print_proof(found, [*write.describe(found), where], run, as_json=as_json)


def _split_codes(languages: str | None) -> tuple[str, str] | None:
    if languages is None:
        return None
    codes = [code.strip() for code in languages.split(",")]
    if len(codes) != 2 or not all(codes):
        raise UserError(f"--languages: {languages!r} given; allowed: two codes, of source and target, as in de,en")
    return codes[0], codes[1]


def _read_set(source: Path, target: Path | None) -> ScoredSet:
    from saccade.inspection.align.aligner import read_pairs

    return ScoredSet(source.name, [pair for pair in read_pairs(source, target) if all(pair)])
