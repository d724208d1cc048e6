"""Settles the limits of outputs that a config leaves to the training pairs."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from saccade.data.sound.recordings import Recordings
from saccade.data.store import Store
from saccade.decoding.limits import PairLengths, choose_max_rounds, find_rounds, fit_lengths
from saccade.decoding.options import DecodingOptions
from saccade.tasks.console import say
from saccade.tasks.translate.config import TranslateConfig


def settle_limits(
    config: TranslateConfig, stores: list[Store], recordings: list[Recordings], console: Console
) -> TranslateConfig:
    """Return the config with the greatest length of outputs, and how often they may go round the same tokens."""
    if not any(map(len, stores)):
        return config
    decoding, update = config.decoding, dict[str, Any]()
    if decoding.max_length_factor == "auto":
        extra = None if decoding.max_length_extra == "auto" else decoding.max_length_extra
        factor, extra = fit_lengths(_lengths(stores, recordings), extra)
        update |= {"max_length_factor": factor, "max_length_extra": extra}
        each = "token" if config.features is None else "frame"
        what = f"{factor:g} tokens for each {each} of the source, and {extra:,} more"
        say(
            console, f"longest output: {what} (max_length_factor, max_length_extra; 1.5 times what training pairs have)"
        )
    elif decoding.max_length_extra == "auto":
        update["max_length_extra"] = DecodingOptions.max_length_extra
    if decoding.max_rounds == "auto":
        rounds = max(find_rounds(store.target.steps, store.target.offsets) for store in stores)
        update["max_rounds"] = choose_max_rounds(rounds)
        seen = f"training targets go round up to {rounds:,} times" if rounds else "training targets don't"
        say(
            console,
            f"outputs that go round the same tokens: cut after {update['max_rounds']:,} rounds (max_rounds; {seen})",
        )
    return config.model_copy(update={"decoding": decoding.model_copy(update=update)})


def _lengths(stores: list[Store], recordings: list[Recordings]) -> list[PairLengths]:
    """Return the lengths of all pairs as decoding counts them: texts and outputs with </s>."""
    if recordings:
        sources = [own.all_lengths(store.source) for own, store in zip(recordings, stores, strict=True)]
    else:
        sources = [store.source.lengths + 1 for store in stores]
    targets = (store.target.lengths + 1 for store in stores)
    return [PairLengths(*both) for both in zip(sources, targets, strict=True) if len(both[0])]
