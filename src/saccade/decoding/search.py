"""The entry to decoding: check the keywords of a call and run the search that they choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

from torch import Tensor

from saccade.decoding.beam import BeamOptions, beam_search
from saccade.decoding.options import DecodingOptions, Hypothesis
from saccade.decoding.sampling import SamplingOptions, sample
from saccade.decoding.slices import Tick
from saccade.decoding.stepper import Stepper
from saccade.errors import UserError

OPTION_NAMES = (  # the keywords that `choose_options` takes
    "sample",
    *dict.fromkeys(field.name for kind in (BeamOptions, SamplingOptions) for field in fields(kind)),
)


class Searcher(Protocol):
    """Another engine that runs a model, and searches for its outputs as we do."""

    name: str

    def refuse(self, options: BeamOptions | SamplingOptions) -> str | None:
        """Say which option it can't honour; None if it can honour all."""

    def refuse_prefixes(self, options: BeamOptions | SamplingOptions) -> str | None:
        """Say why outputs can't be made to begin with something; None if they can."""

    def search(
        self,
        sources: list[list[int]],
        prefixes: list[list[int]],
        options: BeamOptions | SamplingOptions,
        tick: Tick | None,
    ) -> list[list[Hypothesis]]:
        """Return the best outputs of every source, best first."""


def choose_options(default: BeamOptions, given: Mapping[str, Any]) -> BeamOptions | SamplingOptions:
    """Put the keywords of a call over the default options: those of a beam, or with `sample=True` those of samples.

    `beam` is the command line's name of `width`; unless it is given, it is at least `num_best`. An option that has no
    effect is refused, not ignored.
    """
    if "beam" in given and "width" in given:
        raise UserError("beam and width: both given; they are two names of one option")
    kind = SamplingOptions if given.get("sample", False) else BeamOptions
    names = ["beam" if field.name == "width" else field.name for field in fields(kind)]
    for name in given:
        if name not in (*names, "sample") and not (name == "width" and "beam" in names):
            is_for_samples = name in {field.name for field in fields(SamplingOptions)}
            hint = "it goes with sample" if is_for_samples else f"allowed: {', '.join(names)}"
            raise UserError(f"{name}: not an option of {'a beam' if kind is BeamOptions else 'samples'}; {hint}")
    named = {"width" if name == "beam" else name: value for name, value in given.items() if name != "sample"}
    if kind is BeamOptions and "num_best" in named:
        named.setdefault("width", max(default.width, named["num_best"]))
    shared = {field.name: getattr(default, field.name) for field in fields(DecodingOptions)}
    return replace(default, **named) if kind is BeamOptions else SamplingOptions(**{**shared, **named})


def count_steps(options: BeamOptions | SamplingOptions, source_length: int) -> int:
    """Count the steps that a search takes at most, over all hypotheses."""
    return (options.width if isinstance(options, BeamOptions) else options.num_best) * options.limit(source_length)


def search(
    model: Stepper,
    source: Tensor,
    source_length_B: Tensor,
    options: BeamOptions | SamplingOptions,
    prefixes: Sequence[Sequence[int]] = (),
    tick: Tick | None = None,
) -> list[list[Hypothesis]]:
    """Return the best outputs of every source, best first; `tick` is called between two steps (see `slices`)."""
    if isinstance(options, SamplingOptions):
        return sample(model, source, source_length_B, options, prefixes, tick)
    return beam_search(model, source, source_length_B, options, prefixes, tick)
