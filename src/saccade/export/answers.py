"""Proves the export of a model that answers in one pass: the same numbers, the same answers, the same scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from saccade.export.proof import Bounds, Proof, Say, describe_first, max_difference
from saccade.tasks.base import PortablePass

SIZES = (1, 32)  # of batches: some examples alone, and all of them together
NUM_ALONE = 8
TIED = 1e-4  # of log p: only rounding decides between such answers


class PassEngine(Protocol):
    """Another program with the exported model."""

    name: str

    def compute(self, batch: Any) -> Mapping[str, Tensor]:
        """Return what it tells of a batch, by the names of outputs."""


class ComparedAnswers(NamedTuple):
    """The answers to all examples in both engines, and how many of those that differ only rounding parts."""

    ours: list[Any]
    theirs: list[Any]
    num_tied: int


def prove_answers(
    portable: PortablePass, examples: Sequence[Any], engine: PassEngine, bounds: Bounds, proof: Proof, say: Say
) -> None:
    """Compare the exported model in its engine with ours, on a CPU in float32."""
    say("comparing answers")
    worst = dict[str, float]()
    for batch, _ in portable.batches(examples[:NUM_ALONE], SIZES[0]):
        _note_differences(worst, portable.compute(batch), engine.compute(batch))
    found = _compare_answers(portable, examples, engine, worst)
    _judge_numbers(proof, bounds, worst)
    same = sum(one == other for one, other in zip(found.ours, found.theirs, strict=True))
    different = len(examples) - same - found.num_tied
    proof.found["answers"] = {"same": same, "tied": found.num_tied, "different": different}
    if bounds.same_outputs and different:
        proof.missed.append(f"{different:,} of {len(examples):,} answers of {engine.name} differ")
    _judge_scores(proof, bounds, [portable.score(examples, side) for side in found[:2]], engine.name)


def _compare_answers(
    portable: PortablePass, examples: Sequence[Any], engine: PassEngine, worst: dict[str, float]
) -> ComparedAnswers:
    ours, theirs = ([None] * len(examples) for _ in range(2))
    num_tied = 0
    for batch, rows in portable.batches(examples, SIZES[1]):
        mine, its = portable.compute(batch), engine.compute(batch)
        _note_differences(worst, mine, its)
        both = [portable.answer(batch, told) for told in (mine, its)]
        weights = [portable.weigh(batch, mine, answers) for answers in both]
        for row, one, other, likely, likewise in zip(rows, *both, *weights, strict=True):
            ours[row], theirs[row] = one, other
            num_tied += one != other and abs(likely - likewise) <= TIED
    return ComparedAnswers(ours, theirs, num_tied)


def _note_differences(worst: dict[str, float], ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    """Keep the largest difference of each output; outputs of whole numbers are answers."""
    for name, told in ours.items():
        if told.is_floating_point():
            both = (one.flatten().tolist() for one in (told, theirs[name]))
            worst[name] = max_difference([worst.get(name, 0.0), *next(both)], [0.0, *next(both)])


def _judge_numbers(proof: Proof, bounds: Bounds, worst: Mapping[str, float]) -> None:
    bound = bounds.log_probability
    about = {} if bound is None else {"bound": bound}
    proof.found["numbers"] = {name: {"largest_difference": value, **about} for name, value in worst.items()}
    for name, value in worst.items():
        if bound is not None and not value <= bound:  # what is not a number is not below it
            proof.missed.append(f"{name.replace('_', ' ')} differ by up to {value:.1e}, more than {bound:.0e}")


def _judge_scores(proof: Proof, bounds: Bounds, scores: Sequence[Mapping[str, float]], name: str) -> None:
    proof.found["scores"] = dict(zip(("saccade", name), map(dict, scores), strict=True))
    mine, its = (next(iter(one.values())) for one in scores)
    if bounds.score is not None and abs(mine - its) > bounds.score:
        said = f"{describe_first(scores[1])} in {name} and {mine:.2f} here"
        proof.missed.append(f"{said}, more than {bounds.score} apart")
