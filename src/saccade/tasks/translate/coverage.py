"""The share of its texts that a run reads: what is too long, and what it doesn't know. Said before training begins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from saccade.data.store import TOO_LONG, SideLimit, Store
from saccade.data.text.tokenizer import UNKNOWN, Tokenizer, Vocabulary
from saccade.tasks import console as watch
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.corpora import HeldOut, Tokenizers, first_pairs

MANY = 0.01  # a share that calls for a warning
MOST_READ, ROUND = 4095, 64  # tokens of a source where its length is left to the data, and what they are rounded up to
SIDES = ("source", "target")


class Remark(NamedTuple):
    """A line for the user, and whether it is a warning."""

    text: str
    is_warning: bool


def settle_lengths(config: TranslateConfig, both: Tokenizers, console: Console) -> TranslateConfig:
    """Return the config with the most tokens of a source, and with what becomes of longer ones.

    The first pairs of each corpus tell, those whose targets are too long left out.
    """
    data = config.data
    lengths = _source_lengths(config, both)
    most = _choose_length(config, lengths) if data.max_length.source == "auto" else data.source_length
    share, is_raised = _share_above(most, lengths), most > data.source_length
    if is_raised:
        watch.say(console, f"max_length.source: {most:,} tokens (what nearly all sources need)")
    found = data.too_long.source
    if found == "auto":
        found = "cut" if share > MANY or is_raised else "drop"
        if share > MANY:
            said = f"{percent(share)} of the sources have more than {most:,} tokens, while their targets fit"
            watch.say(console, f"too_long: sources are cut ({said})")
    update = {
        "max_length": data.max_length.model_copy(update={"source": most}),
        "too_long": data.too_long.model_copy(update={"source": found}),
    }
    return config.model_copy(update={"data": data.model_copy(update=update)})


def _source_lengths(config: TranslateConfig, both: Tokenizers) -> list[int]:
    """Return how many tokens the sources have, 0 where a target is too long; sounds tell nothing."""
    data = config.data
    if config.features is not None or "auto" not in (data.max_length.source, data.too_long.source):
        return []
    pairs = [pair for pair in first_pairs(config) if all(pair)]
    fits = [len(both[1].encode(pair.target)) <= data.max_length.target for pair in pairs]
    return [len(both[0].encode(pair.source)) * fit for pair, fit in zip(pairs, fits, strict=True)]


def _choose_length(config: TranslateConfig, lengths: list[int]) -> int:
    """Return the usual number of tokens, or what nearly all sources need, as far as a batch and the model hold them."""
    usual, size = config.data.source_length, config.training.tokens_per_batch
    if _share_above(usual, lengths) <= MANY or config.model.score == "location":
        return usual
    needed = sorted(lengths)[math.ceil((1 - MANY) * len(lengths)) - 1]
    most = MOST_READ if isinstance(size, str) else min(MOST_READ, size - 1)  # and </s>
    return max(usual, min(most, -(-needed // ROUND) * ROUND))


def _share_above(most: int, lengths: list[int]) -> float:
    return sum(length > most for length in lengths) / max(1, len(lengths))


def say(
    config: TranslateConfig, both: Tokenizers, stores: Sequence[Store], sets: Sequence[HeldOut], console: Console
) -> None:
    """Say what is too long; what is more than a little is a warning."""
    remarks = [*remark_on_lengths(config, stores)]
    for held in sets:
        remarks += remark_on_held_out(config.data.limits[0], both[0], held)
    spelt = both if config.features is None else (None, both[1])  # sounds have no words
    remarks += remark_on_unknown(spelt, stores, sets[0], copies=config.model.copies)
    for text, is_warning in remarks:
        watch.say(console, text, style="yellow" if is_warning else None)


def remark_on_lengths(config: TranslateConfig, stores: Sequence[Store]) -> Iterator[Remark]:
    """Say how many pairs to train on are left out as too long, and how many sides are cut."""
    limits = config.data.limits
    num_pairs = sum(len(store) + sum(store.left_out.values()) for store in stores)
    for place, (side, reason, limit) in enumerate(zip(SIDES, TOO_LONG, limits, strict=True)):
        field = f"data.max_length.{side} ({limit.most:,})"
        dropped = sum(store.left_out[reason] for store in stores)
        if dropped > MANY * num_pairs:
            also = "" if config.features is not None and not place else f", or set data.too_long.{side}: cut"
            share = f"{percent(dropped / num_pairs)} of the pairs ({dropped:,} of {num_pairs:,}) are left out"
            yield Remark(f"{share}, as their {side}s are too long; raise {field}{also}", is_warning=True)
        cut = sum(store.num_cut[place] for store in stores)
        if cut:
            share = f"{percent(cut / num_pairs)} of the {side}s ({cut:,} of {num_pairs:,}) are cut"
            yield Remark(f"{share} to their first tokens: {field}", is_warning=cut > MANY * num_pairs)


def remark_on_held_out(limit: SideLimit, tokenizer: Tokenizer, held: HeldOut) -> Iterator[Remark]:
    """Say how many held-out sources are not read to their end."""
    sources = [pair.source for pair in held.pairs if all(pair)] if limit.is_cut else []
    if count := sum(len(tokenizer.encode(source)) > limit.most for source in sources):
        said = f"{percent(count / len(sources))} of its sources ({count:,} of {len(sources):,}) are read"
        is_warning = count > MANY * len(sources)
        yield Remark(f"{held.name}: {said} up to their first {limit.most:,} tokens, as in training", is_warning)


def remark_on_unknown(
    both: tuple[Tokenizer | None, Tokenizer], stores: Sequence[Store], valid: HeldOut, *, copies: bool = False
) -> Iterator[Remark]:
    """Say how many words or characters of each side are <unk>, where the tokenizer knows such a thing."""
    for place, (side, tokenizer) in enumerate(zip(SIDES, both, strict=True)):
        if not isinstance(tokenizer, Vocabulary):
            continue  # pieces spell every word
        own = [(store.source, store.target)[place] for store in stores]
        count = sum(int(is_unknown(block.steps, tokenizer).sum()) for one in own for block in one.blocks())
        trained = count / max(1, sum(len(one.steps) for one in own))
        held = [index for pair in valid.pairs for index in tokenizer.encode(pair[place])]
        found = held.count(UNKNOWN) / max(1, len(held))
        if not trained and not found:
            continue
        shares = f"{percent(trained)} to train on, {percent(found)} in {valid.name}"
        remedy = "raise tokenizer.vocabulary_size, or take tokenizer.kind: unigram, which spells all words"
        is_many = max(trained, found) > MANY
        said = f"<unk> among the {tokenizer.kind} of the {side}s: {shares}"
        if copies:
            yield Remark(f"{said}; the model may copy them", is_warning=False)
            continue
        yield Remark(f"{said}; {remedy}" if is_many else said, is_warning=is_many)


def is_unknown(ids: NDArray[np.integer], tokenizer: Vocabulary) -> NDArray[np.bool_]:
    """Find what is not in the vocabulary, but perhaps beside it."""
    return (ids == UNKNOWN) | (ids >= tokenizer.size)


def percent(share: float) -> str:
    """Write a share in percent, with two figures or more."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
