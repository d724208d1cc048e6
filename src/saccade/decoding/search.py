"""One door to every way of decoding: what a caller may say, checked, and the search it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from torch import Tensor

from saccade.decoding.beam import BeamOptions, beam_search
from saccade.decoding.options import DecodingOptions, Hypothesis
from saccade.decoding.sampling import SamplingOptions, sample
from saccade.decoding.stepper import Stepper
from saccade.errors import UserError

OPTION_NAMES = (  # the keywords that `chosen` takes
    "sample",
    *dict.fromkeys(field.name for kind in (BeamOptions, SamplingOptions) for field in fields(kind)),
)


def chosen(default: BeamOptions, given: Mapping[str, Any]) -> BeamOptions | SamplingOptions:
    """The keywords of a call over a default: a beam's, or with `sample=True` those of samples.

    What has no effect is refused, not ignored.
    """
    named = {name: value for name, value in given.items() if name != "sample"}
    kind = SamplingOptions if given.get("sample", False) else BeamOptions
    names = [field.name for field in fields(kind)]
    for name in named:
        if name not in names:
            is_for_samples = name in {field.name for field in fields(SamplingOptions)}
            hint = "it goes with sample" if is_for_samples else f"allowed: {', '.join(names)}"
            raise UserError(f"{name}: not an option of {'a beam' if kind is BeamOptions else 'samples'}; {hint}")
    shared = {field.name: getattr(default, field.name) for field in fields(DecodingOptions)}
    return replace(default, **named) if kind is BeamOptions else SamplingOptions(**{**shared, **named})


def search(
    model: Stepper,
    source: Tensor,
    source_length_B: Tensor,
    options: BeamOptions | SamplingOptions,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """For every source its best outputs, best first."""
    if isinstance(options, SamplingOptions):
        return sample(model, source, source_length_B, options, prefixes)
    return beam_search(model, source, source_length_B, options, prefixes)
