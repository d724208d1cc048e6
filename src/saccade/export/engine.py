"""Other engines in the place of torch: a model is exported when it is loaded, and checked before it is used."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, cast

from saccade.data.text.tokenizer import UNKNOWN
from saccade.decoding import Searcher, Stepper
from saccade.errors import UserError
from saccade.export.ctranslate2 import CTranslate2Engine
from saccade.export.ctranslate2_search import CTranslate2Search
from saccade.export.formats import check_format, choose_format
from saccade.export.proof import max_difference, score_ours
from saccade.tasks.base import Portable, Predictor

MAKERS: dict[str, Callable[[CTranslate2Engine, Stepper], Searcher]] = {
    "ctranslate2": CTranslate2Search
}  # of formats that search
NUM_CHECKED = 8  # pairs of random ids
LONGEST_CHECKED = 24  # ids
MOST_DIFFERENCE = 1e-3  # of log p, in float32


class EngineChoice(NamedTuple):
    """The engine that searches, and how its numbers are stored."""

    name: Literal["torch", "ctranslate2"] = "torch"
    quantization: Literal["float32", "int8"] = "float32"


def use_engine(predictor: Predictor, choice: EngineChoice) -> Predictor:
    """Return a predictor whose outputs the chosen engine searches for."""
    if choice.name == "torch":
        if choice.quantization != "float32":
            raise UserError(
                f"quantization: {choice.quantization} given; the engine torch computes with the run's numbers"
            )
        return predictor
    if choice.name not in MAKERS:
        raise UserError(f"engine: {choice.name!r} given; allowed: torch, {', '.join(MAKERS)}")
    return predictor.with_searcher(lambda portable: _make(portable, choice))


def _make(portable: Portable, choice: EngineChoice) -> Searcher:
    """Export a model into a folder that lasts until it is loaded."""
    chosen = choose_format(choice.name)
    if choice.quantization not in chosen.quantizations:
        allowed = ", ".join(chosen.quantizations)
        raise UserError(f"quantization: {choice.quantization!r} given; allowed: {allowed}")
    check_format(choice.name, portable)
    with tempfile.TemporaryDirectory(prefix="saccade-engine-") as place:
        chosen.write(portable, Path(place), choice.quantization)
        engine = CTranslate2Engine(portable, Path(place))
    if choice.quantization == "float32":
        _check(portable, engine)
    searcher = MAKERS[choice.name](engine, cast(Stepper, portable.network))
    if (reason := searcher.refuse(portable.options)) is not None:
        raise UserError(f"{reason}, and the run's config asks for it; the engine torch can")
    return searcher


def _check(portable: Portable, engine: CTranslate2Engine) -> None:
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
