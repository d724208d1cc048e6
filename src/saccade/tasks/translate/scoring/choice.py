"""The choice of the metric that a run goes by: `training.metric: auto` is chosen by what the targets are, and said."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from rich.console import Console

from saccade.data.text.corpus import Pair
from saccade.data.text.sentences import UNSPACED, count_words
from saccade.tasks.console import say
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.corpora import HeldOut, first_pairs
from saccade.tasks.translate.scoring.metrics import BLEU_ORDER, share_of_short

LONG, TIMES = 20, 4  # words of a source that is summed up, and how many times it is longer
FEW_WORDS, OFTEN = 100, 10  # phones and actions: so few different words in all, each used so often
NEARLY_ALL = 0.95  # of the words of targets that name slots and their values
WORD = re.compile(r"\w+|[^\w\s]")


class MetricChoice(NamedTuple):
    """A metric, and why it suits."""

    metric: str
    reason: str


def settle_metric(config: TranslateConfig, valid: HeldOut, console: Console) -> TranslateConfig:
    """Return the config with its metric, told by the first pairs of each corpus; warn of one that can't move."""
    training = config.training
    if training.metric == "bleu":
        short = share_of_short([pair.target for pair in valid.pairs if all(pair)], training.bleu_tokenize)
        if short > 0.5:
            said = f"{short:.0%} of the targets in {valid.name} have fewer than four words, where BLEU is 0 or luck"
            say(console, f"training.metric: bleu given, but {said}; exact, wer or chrf tell more", style="yellow")
    if training.metric != "auto":
        return config
    if config.features is not None:
        choice = MetricChoice("wer", "targets are what was said")
    else:
        choice = choose_metric(itertools.chain(first_pairs(config), valid.pairs))
    say(console, f"metric: {choice.metric} ({choice.reason})")
    return config.model_copy(update={"training": training.model_copy(update={"metric": choice.metric})})


def choose_metric(pairs: Iterable[Pair]) -> MetricChoice:
    """Choose the metric that tells good outputs from bad ones of such pairs."""
    rows = [pair for pair in pairs if all(pair)]
    source, target = ([count_words(pair[side]) for pair in rows] for side in (0, 1))
    usual_source, usual_target = median(source or [0]), median(target or [0])
    if usual_target <= 1:
        return MetricChoice("exact", "most targets are one word")
    if usual_source >= LONG and usual_source >= TIMES * usual_target:
        return MetricChoice("rouge", f"sources have {usual_source / usual_target:.0f} times the words of their targets")
    if usual_target < BLEU_ORDER:
        return MetricChoice("exact", "most targets have fewer than four words, where BLEU is 0")
    used = Counter(word for pair in rows for word in pair.target.split())
    if len(used) <= FEW_WORDS and used.total() >= OFTEN * len(used):
        return MetricChoice(
            "wer", f"targets are written with {len(used)} different words, so that errors can be counted"
        )
    if are_assembled(rows):
        return MetricChoice("exact", "targets are put together from few different words and words of their sources")
    if 2 * sum(len(UNSPACED.findall(pair.target)) for pair in rows) > sum(len(pair.target) for pair in rows):
        return MetricChoice("chrf", "targets are written without spaces")
    return MetricChoice("bleu", "targets are sentences")


def are_assembled(pairs: Iterable[Pair]) -> bool:
    """Tell whether targets are made of the most frequent words and words of their sources; of few pairs nothing is."""
    rows = [pair for pair in pairs if all(pair)]
    targets = [WORD.findall(pair.target) for pair in rows]
    used = Counter(itertools.chain.from_iterable(targets))
    if used.total() < OFTEN * FEW_WORDS:
        return False
    frequent = {word for word, _ in used.most_common(FEW_WORDS)}
    known = (frequent.union(WORD.findall(pair.source)) for pair in rows)
    parts = sum(word in allowed for words, allowed in zip(targets, known, strict=True) for word in words)
    return parts > NEARLY_ALL * used.total()
