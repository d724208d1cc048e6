"""Other engines in the place of torch: a model is exported when it is loaded, and checked before it is used."""

from __future__ import annotations

import random
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import cast, get_args

from saccade.data.text.tokenizer import UNKNOWN
from saccade.decoding import Searcher, Stepper
from saccade.errors import UserError
from saccade.export.choice import TORCH, EngineChoice, EngineName, Quantization
from saccade.export.native import pack as native_pack
from saccade.export.native.engine import NativeEngine
from saccade.export.native.library import choose_kernels
from saccade.export.native.reader import Encoder, NativeReader, difference, refuse_network, replace_encoders
from saccade.export.native.search import NativeSearch
from saccade.export.native.shortlist import Shortlist
from saccade.export.proof import Engine, max_difference, score_ours
from saccade.models.transformer import Transformer
from saccade.tasks.base import Portable, Predictor

NUM_CHECKED = 8  # pairs of random ids
LONGEST_CHECKED = 24  # ids
MOST_DIFFERENCE = 1e-3  # of log p, in float32


def use_engine(predictor: Predictor, choice: EngineChoice) -> Predictor:
    """Return a predictor whose outputs the chosen engine searches for."""
    if choice.quantization not in get_args(Quantization):
        allowed = ", ".join(get_args(Quantization))
        raise UserError(f"quantization: {choice.quantization!r} given; allowed: {allowed}")
    if choice.name == "auto":
        chosen, reason = choose_engine(predictor)
        if chosen == TORCH.name and choice.quantization != TORCH.quantization:
            raise UserError(f"quantization: {choice.quantization} given; auto takes torch here, because {reason}")
        if isinstance(reason, BuildFailure):
            warnings.warn(f"engine: auto takes torch, which is slower: {reason}", stacklevel=2)
        if chosen == "native" and choice.quantization == TORCH.quantization and choice.shortlist is None:
            return _use_native_or_torch(predictor, choice._replace(name=chosen))
        choice = choice._replace(name=chosen)
    if choice.shortlist is not None and choice.name != "native":
        raise UserError(f"shortlist: given with the engine {choice.name}; only the engine native takes one")
    if choice.name == TORCH.name:
        if choice.quantization != TORCH.quantization:
            raise UserError(
                f"quantization: {choice.quantization} given; the engine torch computes with the run's numbers"
            )
        return predictor
    if choice.name not in ENGINES:
        raise UserError(f"engine: {choice.name!r} given; allowed: auto, {TORCH.name}, {', '.join(ENGINES)}")
    return _use_engine(predictor, choice)


def _use_engine(predictor: Predictor, choice: EngineChoice) -> Predictor:
    """Let an engine search, or the native one read for a model that answers in one pass."""
    if choice.name == "native" and predictor.has_readers:
        return _use_readers(predictor, choice)
    return predictor.with_searcher(lambda portable: make_searcher(portable, choice))


def _use_readers(predictor: Predictor, choice: EngineChoice) -> Predictor:
    """Put the native library in the place of a network's text encoders."""
    network = predictor.portable().network
    if choice.shortlist is not None:
        raise UserError("shortlist: given, but this model writes no text")
    if (reason := refuse_network(network)) is not None:
        raise UserError(f"engine: native can't run this model: {reason}; the engine torch can")
    return predictor.with_network(replace_encoders(network, partial(_pack_reader, choice.quantization)), choice.name)


def _pack_reader(quantization: Quantization, encoder: Encoder) -> NativeReader:
    packed = native_pack.pack(encoder, quantization)
    reader = NativeReader(encoder, packed)
    if quantization == "float32":
        native_pack.check_once(packed, reader.kernels, partial(_check_reader, reader))
    return reader


def _check_reader(reader: NativeReader) -> None:
    if not (worst := difference(reader, LONGEST_CHECKED)) <= MOST_DIFFERENCE:
        raise UserError(f"engine: native is wrong on this machine, vectors differ by {worst:.1e}; use torch")


def _use_native_or_torch(predictor: Predictor, choice: EngineChoice) -> Predictor:
    """Use torch, with a warning, where the native engine fails: nobody asked for it."""
    try:
        return _use_engine(predictor, choice)
    except UserError as error:
        warnings.warn(f"engine: auto takes torch, which is slower: {error}", stacklevel=3)
        return predictor


class BuildFailure(str):
    """The reason why there is no native library on this machine."""


def choose_engine(predictor: Predictor) -> tuple[EngineName, str]:
    """Return the engine that `auto` takes for a predictor, and why."""
    try:
        portable = predictor.portable()
    except UserError:
        return "torch", "models of this task are run by torch alone"
    if (device := next(portable.network.parameters()).device).type != "cpu":
        return "torch", f"the model is on {device}"
    writes = isinstance(portable, Portable)
    if (reason := (native_pack.refuse if writes else refuse_network)(portable.network)) is not None:
        return "torch", f"the native library can't run {reason}"
    try:
        kernels = choose_kernels()
    except UserError as error:
        return "torch", BuildFailure(str(error).removeprefix("engine: "))
    if not writes:
        return "native", f"the native library runs the encoder of this model, here with kernels for {kernels}"
    kind = "Transformer" if isinstance(portable.network, Transformer) else "RNN"
    return "native", f"the native library runs all of this {kind}, here with kernels for {kernels}"


def explain_engines(predictor: Predictor) -> dict[EngineName, str | None]:
    """Return for each engine why it can't run a predictor's model; None: it can."""
    found: dict[EngineName, str | None] = {"torch": None}
    try:
        portable = predictor.portable()
    except UserError as error:
        return {name: None if name == "torch" else str(error) for name in ("torch", *ENGINES)}
    for name in ENGINES:
        if name == "native":
            chosen, reason = choose_engine(predictor)
            found[name] = None if chosen == name else reason
        elif not isinstance(portable, Portable):
            found[name] = "it searches for texts, and models of this task write none"
        else:
            found[name] = _explain_format(name, portable)
    return found


def _explain_format(name: str, portable: Portable) -> str | None:
    from saccade.export.formats import check_format

    try:
        check_format(name, portable)
    except UserError as error:
        return str(error)
    return None


def make_searcher(portable: Portable, choice: EngineChoice) -> Searcher:
    """Build an engine that searches for a model's outputs."""
    searcher = ENGINES[choice.name](portable, choice)
    if (reason := searcher.refuse(portable.options)) is not None:
        raise UserError(f"{reason}, and the run's config asks for it; the engine torch can")
    return searcher


def _export(name: str, search: str, portable: Portable, choice: EngineChoice) -> Searcher:
    """Export a model to a format, into a folder that lasts until it is loaded, and search with what was loaded."""
    from saccade.export.formats import check_format, choose_format  # who searches with another engine needs none

    chosen = choose_format(name)
    check_format(name, portable)
    with tempfile.TemporaryDirectory(prefix="saccade-engine-") as place:
        chosen.write(portable, Path(place), choice.quantization)
        engine = cast(Engine, chosen.load(portable, Path(place)))
    if choice.quantization == "float32":
        _check(portable, engine)
    found: Searcher = resolve_name(search)(engine, cast(Stepper, portable.network))
    return found


def _check(portable: Portable, engine: Engine) -> None:
    """Compare log-probabilities of a few random ids: an engine that is wrong on this machine is not used."""
    draw, longest = random.Random(1), min(LONGEST_CHECKED, (engine.longest or LONGEST_CHECKED + 1) - 1)
    sources, targets = (
        [
            [draw.randrange(UNKNOWN, size) for _ in range(1 + number * (longest - 1) // (NUM_CHECKED - 1))]
            for number in range(NUM_CHECKED)
        ]
        for size in (portable.source.size, portable.target.size)
    )
    ours, theirs = score_ours(portable, sources, targets), engine.log_probabilities(sources, targets)
    worst = max_difference((step for row in ours for step in row), (step for row in theirs for step in row))
    if not worst <= MOST_DIFFERENCE:
        raise UserError(f"engine: {engine.name} is wrong on this machine, log p differs by {worst:.1e}; use torch")


def _pack(portable: Portable, choice: EngineChoice) -> Searcher:
    """Pack a model for the native library, and search with it."""
    if (reason := native_pack.refuse(portable.network)) is not None:
        raise UserError(f"engine: native can't run this model: {reason}; the engine torch can")
    network = cast(native_pack.Searchable, portable.network)
    packed = native_pack.pack(network, choice.quantization)
    engine = NativeEngine(network, packed)
    if choice.quantization == "float32":
        native_pack.check_once(packed, engine.kernels, lambda: _check(portable, engine))
    return NativeSearch(engine, None if choice.shortlist is None else Shortlist.load(choice.shortlist, portable))


ENGINES: Mapping[EngineName, Callable[[Portable, EngineChoice], Searcher]] = {  # each is a name of `EngineName`, too
    "native": _pack,
    "ctranslate2": partial(_export, "ctranslate2", "saccade.export.ctranslate2_search:CTranslate2Search"),
    "onnx": partial(_export, "onnx", "saccade.export.onnx.search:OnnxSearch"),
}
