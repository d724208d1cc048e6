"""Exports a run: written whole or not at all, with its proof beside it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from saccade.errors import UserError
from saccade.export.answers import prove_answers
from saccade.export.formats import FORMATS, Exported, Format, check_format, choose_format
from saccade.export.proof import MINUTES, Engine, Ids, Proof, Sample, Say, encode_sample, list_versions, prove
from saccade.files import create_folder, name_place, pack_folder, replace_file
from saccade.tasks.base import Portable, PortablePass, ScoredSet

PROOF = "proof.json"


def export(
    name: str,
    portable: Exported,
    out: Path,
    *,
    quantization: str,
    scored: ScoredSet,
    most: int,
    say: Say,
    minutes: float = MINUTES,
) -> Proof:
    """Write a model in a format, compare it there with ours on the first pairs of a set, and return what was found."""
    chosen = choose_format(name)
    check_format(name, portable)
    if quantization not in chosen.quantizations:
        raise UserError(f"--quantization: {quantization!r} given; allowed: {', '.join(chosen.quantizations)}")
    if chosen.ending and out.suffix != chosen.ending:
        raise UserError(f"{out}: {name} writes a file; give it a name that ends with {chosen.ending}")
    if out.exists():
        raise UserError(f"{out}: it is there already; give another place, or delete it")
    job = ExportJob(name, chosen, portable, quantization, scored, most, say, minutes)
    return _write_file(job, out) if chosen.ending else _write_folder(job, out)


class ExportJob(NamedTuple):
    """A model to write, and the set that proves it."""

    name: str
    format: Format
    portable: Exported
    quantization: str
    scored: ScoredSet
    most: int
    say: Say
    minutes: float

    def fill(self, folder: Path) -> tuple[Proof, Comparison | None]:
        """Write the model into an empty folder, and compare."""
        self.say("writing")
        facts = self.format.write(self.portable, folder, self.quantization)
        proof = Proof({"format": self.name, "quantization": self.quantization, **facts})
        engine = self.format.load(self.portable, folder)
        compared = None
        if isinstance(self.portable, Portable):
            compared = self._compare_outputs(self.portable, engine, proof)
        else:
            self._compare_answers(self.portable, engine, proof)
        proof.found["versions"] = list_versions(self.format.libraries)
        return proof, compared

    def _compare_outputs(self, portable: Portable, engine: Any, proof: Proof) -> Comparison:
        sample = encode_sample(portable, self.scored, engine.longest, self.most)
        if not sample.sources:
            raise UserError(f"{self.scored.name}: no pair of this set is short enough to prove the export with")
        proof.about |= {"set": self.scored.name, "pairs": len(sample.sources), "left_out": sample.left_out}
        bounds = self.format.quantizations[self.quantization]._replace(minutes=self.minutes)
        return Comparison(engine, sample, prove(portable, sample, engine, bounds, proof, self.say))

    def _compare_answers(self, portable: PortablePass, engine: Any, proof: Proof) -> None:
        examples = self.scored.pairs[: self.most]
        proof.about |= {"set": self.scored.name, "examples": len(examples)}
        prove_answers(portable, examples, engine, self.format.quantizations[self.quantization], proof, self.say)


class Comparison(NamedTuple):
    """The parts of a comparison: the engine, the pairs, and our outputs of the wider beam."""

    engine: Engine
    sample: Sample
    outputs: Ids


def _write_folder(job: ExportJob, out: Path) -> Proof:
    with create_folder(out) as draft:
        proof, _ = job.fill(draft)
        (draft / PROOF).write_text(json.dumps(proof.plain(), indent=1), "utf-8")
    return proof


def _write_file(job: ExportJob, out: Path) -> Proof:
    """Write a packed folder, and its proof beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as place, name_place(out, Path(place)):
        folder, packed = Path(place) / "folder", Path(place) / out.name
        folder.mkdir()
        proof, check = job.fill(folder)
        pack_folder(folder, packed)
        if job.format.run_program is not None and check is not None:
            job.say("running its program")
            assert isinstance(job.portable, Portable)
            proof.found["program"] = job.format.run_program(job.portable, packed, *check)
        with replace_file(find_proof(out)) as draft:
            draft.write_text(json.dumps(proof.plain(), indent=1), "utf-8")
        packed.rename(out)
    return proof


def find_proof(out: Path) -> Path:
    """Return the place of an export's proof: in its folder, or beside its file."""
    return (
        out.with_suffix(f".{PROOF}") if out.suffix in {one.ending for one in FORMATS.values()} - {""} else out / PROOF
    )
