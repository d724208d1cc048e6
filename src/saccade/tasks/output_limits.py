"""Settles the limits of outputs that a config leaves to the training pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from rich.console import Console

from saccade.config.base import Section
from saccade.data.store import RaggedArray
from saccade.decoding.limits import PairLengths, choose_max_rounds, find_rounds, fit_lengths
from saccade.decoding.options import DecodingOptions
from saccade.tasks.console import say

S = TypeVar("S", bound=Section)


def settle_limits(
    decoding: S,
    lengths: Sequence[PairLengths],
    targets: Sequence[RaggedArray],
    console: Console,
    *,
    unit: str = "token",
) -> S:
    """Return a decoding section whose `auto` is chosen from the pairs of each corpus; sources are counted in `unit`."""
    given: Any = decoding
    update: dict[str, Any] = {}
    if given.max_length_factor == "auto":
        extra = None if given.max_length_extra == "auto" else given.max_length_extra
        factor, extra = fit_lengths(lengths, extra)
        update |= {"max_length_factor": factor, "max_length_extra": extra}
        what = f"{factor:g} tokens for each {unit} of the source, and {extra:,} more"
        say(
            console, f"longest output: {what} (max_length_factor, max_length_extra; 1.5 times what training pairs have)"
        )
    elif given.max_length_extra == "auto":
        update["max_length_extra"] = DecodingOptions.max_length_extra
    if given.max_rounds == "auto":
        seen = max(find_rounds((block.steps, block.offsets) for block in side.blocks()) for side in targets)
        rounds = update["max_rounds"] = choose_max_rounds(seen)
        why = f"training targets go up to {seen:,} times" if seen else "training targets don't"
        say(console, f"loops: an output goes round the same tokens at most {rounds:,} times (max_rounds; {why})")
    return decoding.model_copy(update=update)
