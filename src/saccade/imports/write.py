"""Imports a folder as a run: written whole or not at all, with the proof that it answers as there."""

from __future__ import annotations

import importlib
import json
import random
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from saccade import manifest
from saccade.data.batches import decoder_input, pad_sources
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import LANGUAGE, SPECIAL, ListedPieces, Tokenizer, tokenizer_file_name
from saccade.errors import UserError, describe_missing
from saccade.export.ctranslate2 import CTranslate2Engine
from saccade.export.huggingface import HuggingFaceEngine
from saccade.export.proof import (
    MINUTES,
    Bounds,
    Proof,
    Sample,
    Say,
    encode_sample,
    list_versions,
    max_difference,
    prove,
)
from saccade.files import create_folder
from saccade.imports import ctranslate2
from saccade.imports.ctranslate2 import ReadFolder, tokenizer_kind
from saccade.imports.huggingface import ReadModel, read_model
from saccade.imports.layouts import Codes
from saccade.inspection.record import recording
from saccade.runs import config as config_file
from saccade.runs.check import CONFIG, SUMMARY
from saccade.runs.load import load_run
from saccade.tasks.base import Portable, Predictor, ScoredSet
from saccade.training import checkpoints

PROOF = "proof.json"
LIBRARIES = ("transformers", "sentencepiece", "safetensors")
KINDS = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
LONGEST = 24  # pieces of a drawn text


class InsideBounds(NamedTuple):
    """Bounds on the differences of all logits, and of the weights of all heads."""

    logits: float = 1e-5
    attention: float = 1e-6


def import_folder(
    folder: Path,
    run: Path,
    *,
    languages: Codes = None,
    scored: ScoredSet | None = None,
    most: int,
    say: Say,
    bounds: InsideBounds | None = None,
    minutes: float = MINUTES,
) -> Proof:
    """Write a run, compare it with the folder's own engine on some pairs (or on drawn ones), and return what was found.

    A run whose bounds don't hold is written, too, with a proof that says so.
    """
    if not folder.is_dir():
        said = "this is a file; allowed: a folder" if folder.exists() else "there is no such folder"
        raise UserError(f"{folder}: {said}")
    try:
        importlib.import_module("ctranslate2" if ctranslate2.is_ours(folder) else "transformers")
    except ModuleNotFoundError as error:
        raise UserError(describe_missing("an import", error, "export")) from None
    if run.exists():
        raise UserError(f"{run}: it is there already; give another place, or delete it")
    say("reading")
    model = _read(folder, languages)
    with create_folder(run) as draft:
        _write_run(model, draft, folder)
        predictor: Predictor = load_run(draft, device="cpu")
        portable = predictor.portable()
        assert isinstance(portable, Portable)  # an import reads and writes text
        proof = _prove(model, portable, folder, scored, most, say, bounds or InsideBounds(), minutes)
        manifest.write(draft, PROOF, json.dumps(proof.plain(), indent=1))
    return proof


def _read(folder: Path, languages: Codes) -> ReadModel | ReadFolder:
    """Read a folder of Hugging Face, or of CTranslate2."""
    if not ctranslate2.is_ours(folder):
        return read_model(folder, languages)
    if languages is not None:
        raise UserError(f"--languages: given, but {folder} is a folder of CTranslate2, which has no choice")
    return ctranslate2.read_folder(folder)


def _write_run(model: ReadModel | ReadFolder, draft: Path, folder: Path) -> None:
    """Write what training leaves in a run."""
    config = config_file.check_config(model.sections, f"{folder}: what was read")
    manifest.begin(draft)
    config_file.save_config(config, draft / CONFIG)
    for side in ("source", "target"):
        tokenizer = model.tokenizer_of(side)
        tokenizer.save(draft / tokenizer_file_name(tokenizer_kind(tokenizer), f"tokenizer.{side}"))
    manifest.record(draft, *(path.name for path in draft.glob("tokenizer.*")))
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    manifest.write(draft, SUMMARY, json.dumps({"parameters": parameters, "data": []}, indent=1))
    checkpoints.save_weights(draft / "model.safetensors", model.network)


def _prove(
    model: ReadModel | ReadFolder,
    portable: Portable,
    folder: Path,
    scored: ScoredSet | None,
    most: int,
    say: Say,
    bounds: InsideBounds,
    minutes: float,
) -> Proof:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Hugging Face, about tokenizers
        engine: HuggingFaceEngine | CTranslate2Engine
        if isinstance(model, ReadFolder):
            engine = CTranslate2Engine(portable, folder)
        else:
            engine = HuggingFaceEngine(portable, folder, model.numbering, model.layout.codes)
        if scored is None:
            portable = portable._replace(score=lambda outputs, references: {})
            scored = _draw_pairs(portable, most)
        sample = encode_sample(portable, scored, engine.longest, most)
        if not sample.sources:
            raise UserError(f"{scored.name}: no pair of this set is short enough to prove the import with")
        proof = Proof({"format": engine.name, "set": scored.name, "pairs": len(sample.sources)})
        prove(portable, sample, engine, Bounds(minutes=minutes), proof, say)
        if isinstance(engine, HuggingFaceEngine):
            _compare_inside(portable, sample, engine, proof, bounds, say)
    proof.found["versions"] = list_versions(("ctranslate2",) if isinstance(model, ReadFolder) else LIBRARIES)
    return proof


def _draw_pairs(portable: Portable, count: int) -> ScoredSet:
    """Draw texts of random pieces, for there is no test set; of a model with several languages, each with one."""
    draw, source, target = random.Random(1), portable.source, portable.target
    is_listed = isinstance(source, ListedPieces) and not source.first
    languages = [name for name in source.symbols if LANGUAGE.fullmatch(name)] if is_listed else []

    def text(tokenizer: Tokenizer) -> str:
        ids = draw.choices(range(len(SPECIAL), tokenizer.size), k=draw.randint(1, LONGEST))
        pieces = zip(ids, tokenizer.pieces(ids), strict=True)
        return tokenizer.decode([number for number, name in pieces if not LANGUAGE.fullmatch(name)])

    texts = [(text(source), text(target)) for _ in range(count)]
    starts = [f"{draw.choice(languages)} " if languages else "" for _ in texts]
    pairs = [Pair(start + one, other) for start, (one, other) in zip(starts, texts, strict=True)]
    return ScoredSet("drawn texts", [pair for pair in pairs if all(pair)])


@torch.no_grad()
def _compare_inside(
    portable: Portable, sample: Sample, engine: HuggingFaceEngine, proof: Proof, bounds: InsideBounds, say: Say
) -> None:
    """Compare all logits, and the weights of all heads of all layers, while references are read."""
    network, numbers = cast(Any, portable.network), engine.numbering
    worst = dict.fromkeys(("logits", *KINDS), 0.0)
    silent = torch.isin(numbers.target_V, torch.tensor([*numbers.silent], dtype=torch.long))
    silent[1] |= bool((numbers.target_V == numbers.target_V[1]).sum() > 1)  # our <s>, a copy of another id
    engine.model.set_attn_implementation("eager")
    for number, (source, target) in enumerate(zip(sample.sources, sample.targets, strict=True)):
        say(f"comparing logits and weights: {number:,} of {len(sample.sources):,}")
        with recording(network, kinds=KINDS) as record:
            ours = network.logits(network(*pad_sources([source]), decoder_input([target])))
        theirs = engine.read([source], [target], output_attentions=True)
        found: Mapping[str, tuple[Tensor, Tensor]] = {
            "logits": (ours[0][:, ~silent], theirs.logits[0][:, numbers.target_V[~silent]]),
            **{kind: (record.weights(kind), torch.stack(theirs[name])) for kind, name in KINDS.items()},
        }
        for name, (one, other) in found.items():
            worst[name] = max_difference([worst[name], float((one - other).abs().max())], [0.0, 0.0])
    engine.model.set_attn_implementation("sdpa")
    proof.found["logits"] = {"largest_difference": worst.pop("logits"), "bound": bounds.logits}
    proof.found["weights"] = {"largest_difference": worst, "bound": bounds.attention}
    _check(proof, "logits", [proof.found["logits"]["largest_difference"]], bounds.logits)
    _check(proof, "attention weights", [*worst.values()], bounds.attention)


def _check(proof: Proof, what: str, found: Sequence[float], bound: float) -> None:
    if not all(one <= bound for one in found):  # what is not a number is not below it
        proof.missed.append(f"{what} differ by up to {max(found):.1e}, more than {bound:.0e}")


def describe(proof: Proof) -> list[str]:
    """Format a proof as lines for people."""
    if "logits" not in proof.found:
        return proof.lines()
    logits, weights = (proof.found[name]["largest_difference"] for name in ("logits", "weights"))
    first, *outputs = proof.lines()
    said = f"logits differ by at most {logits:.1e}, weights of all heads by {max(weights.values()):.1e}"
    return [first, said, *outputs]
