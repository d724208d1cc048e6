"""Exports a run: written whole or not at all, with its proof beside it."""

from __future__ import annotations

import json
from pathlib import Path

from saccade.errors import UserError
from saccade.export.formats import check_format, choose_format
from saccade.export.proof import Proof, Say, encode_sample, list_versions, prove
from saccade.files import create_folder
from saccade.tasks.base import Portable, ScoredSet

PROOF = "proof.json"


def export(
    name: str, portable: Portable, out: Path, *, quantization: str, scored: ScoredSet, most: int, say: Say
) -> Proof:
    """Write a model in a format, compare it there with ours on the first pairs of a set, and return what was found."""
    chosen = choose_format(name)
    check_format(name, portable)
    if quantization not in chosen.quantizations:
        raise UserError(f"--quantization: {quantization!r} given; allowed: {', '.join(chosen.quantizations)}")
    if out.exists():
        raise UserError(f"{out}: it is there already; give another place, or delete it")
    with create_folder(out) as draft:
        say("writing")
        facts = chosen.write(portable, draft, quantization)
        engine = chosen.load(portable, draft)
        sample = encode_sample(portable, scored, engine.longest, most)
        if not sample.sources:
            raise UserError(f"{scored.name}: no pair of this set is short enough to prove the export with")
        pairs = {"set": scored.name, "pairs": len(sample.sources), "left_out": sample.left_out}
        proof = Proof({"format": name, "quantization": quantization, **facts, **pairs})
        prove(portable, sample, engine, chosen.quantizations[quantization], proof, say)
        proof.found["versions"] = list_versions(chosen.libraries)
        (draft / PROOF).write_text(json.dumps(proof.plain(), indent=1), "utf-8")
    return proof
