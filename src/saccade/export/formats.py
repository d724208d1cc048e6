"""The formats that a run is exported to: what each can say, how it is written, and the engine that judges it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from saccade.data.text.tokenizer import ListedPieces, SentencePiece, Vocabulary
from saccade.errors import UserError, describe_missing
from saccade.export import argos, ctranslate2, huggingface
from saccade.export.answers import PassEngine
from saccade.export.onnx import runtime, write
from saccade.export.proof import Bounds, Engine, Ids, Sample
from saccade.models.pointing.copying import CopyingModel
from saccade.tasks.base import Portable, PortablePass

Exported = Portable | PortablePass


class Format(NamedTuple):
    """A format; its functions import its libraries when they are called."""

    libraries: tuple[str, ...]
    refuse: Callable[[Any], str | None]  # say what it can't say
    write: Callable[[Any, Path, str], Mapping[str, object]]  # into a folder; return what the proof mentions
    load: Callable[[Any, Path], Engine | PassEngine]
    quantizations: Mapping[str, Bounds]  # how numbers may be stored, and what must hold then
    ending: str = ""  # of a file that the folder is packed into
    run_program: Callable[[Portable, Path, Engine, Sample, Ids], Mapping[str, object] | None] | None = None
    # translate the sample with the program that the file is for, if it is there, and compare
    translates: bool = True  # it has models that read text and write text, and no others


QUANTIZATIONS = {"float32": Bounds(), "int8": Bounds(log_probability=None, same_outputs=False, score=0.2)}
FORMATS = {
    "ctranslate2": Format(
        ("ctranslate2",),
        ctranslate2.refuse,
        ctranslate2.write,
        ctranslate2.CTranslate2Engine,
        QUANTIZATIONS,
    ),
    "huggingface": Format(
        ("transformers",),
        huggingface.refuse,
        huggingface.write,
        huggingface.HuggingFaceEngine,
        {"float32": Bounds()},
    ),
    "onnx": Format(
        ("onnx", "onnxruntime"),
        write.refuse,
        write.write,
        runtime.load,
        QUANTIZATIONS,
        translates=False,
    ),
    "argos": Format(
        ("ctranslate2", "onnx"),
        argos.refuse,
        argos.write,
        argos.load,
        QUANTIZATIONS,
        argos.ENDING,
        argos.run_program,
    ),
}


def choose_format(name: str) -> Format:
    """Return the format of this name, if its libraries are there."""
    if name not in FORMATS:
        raise UserError(f"format: {name!r} given; allowed: {', '.join(FORMATS)}")
    try:
        for library in FORMATS[name].libraries:
            import_module(library)
    except ModuleNotFoundError as error:
        raise UserError(describe_missing(f"export to {name}", error, "export")) from None
    return FORMATS[name]


def refuse(name: str, portable: Exported) -> str | None:
    """Say what of a model a format can't say; None if it can say all."""
    chosen = FORMATS[name]
    if isinstance(portable.network, CopyingModel):
        return "model.copies: true (its search writes tokens of the vocabulary only)"
    if name in ("onnx", "argos") and isinstance(portable, Portable) and portable.target.encode(""):
        return "a language that each output begins with (its programs can't be told one)"
    if not chosen.translates:
        return chosen.refuse(portable)
    if not isinstance(portable, Portable):
        return f"a model that gives {portable.facts['answers']} (it has models that write text)"
    if not isinstance(portable.source, SentencePiece | ListedPieces | Vocabulary):
        return "a model that reads no text (it reads ids of texts)"
    return chosen.refuse(portable)


def list_possible(portable: Exported | None) -> list[str]:
    """List the formats that can say a model."""
    return [] if portable is None else [name for name in FORMATS if refuse(name, portable) is None]


def check_format(name: str, portable: Exported) -> None:
    """Refuse a model that a format can't say, and name the formats that can."""
    reason = refuse(name, portable)
    if reason is not None:
        others = list_possible(portable)
        raise UserError(f"{name} can't say {reason}; formats that can: {', '.join(others) or 'none'}")


def describe_exports(portable: Exported | None) -> str:
    """Say in a line which exports a model allows."""
    found = list_possible(portable)
    return f"export: {', '.join(found)}" if found else "export: no format can say this model"
