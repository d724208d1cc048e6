"""The runs that copy words of their sources by themselves: those that sum up, from few texts; and how these learn."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from saccade.data.text.corpus import Corpus
from saccade.data.text.tokenizer_choice import MOST_TOKENS
from saccade.tasks.console import say
from saccade.tasks.translate.config import TranslateConfig, TranslateTraining
from saccade.tasks.translate.corpora import first_pairs, training_corpora
from saccade.tasks.translate.networks import MOST_PAIRS, AutoModel
from saccade.tasks.translate.scoring.choice import choose_metric

NEARLY_ALL = 0.92  # of the words of summaries: 95% where marks stand apart and all is lower case; as written 75%
RATE, AVERAGE = 0.001, 0.999  # for models of words, which soon know their texts by heart


def settle_copying(config: TranslateConfig, console: Console) -> TranslateConfig:
    """Return the config with an RNN that copies, if its kind is open and its pairs are few summaries."""
    section = config.model
    if not isinstance(section, AutoModel) or "copies" in section.model_fields_set or not _may_copy(config):
        return config
    corpora = training_corpora(config)
    if choose_metric(first_pairs(config)).metric != "rouge":
        return config
    if sum(1 for corpus in corpora for _ in itertools.islice(corpus.pairs(), MOST_PAIRS + 1)) > MOST_PAIRS:
        return config
    say(console, "model: rnn that copies words of its source (few texts that are summed up)")
    update: dict[str, Any] = {"model": section.model_copy(update={"copies": True}).of_kind("rnn")}
    tokenizer = config.tokenizer.model_copy(update={"shared": True})
    if (
        tokenizer.kind == "auto"
        and not tokenizer.model
        and not tokenizer.sampling
        and _do_words_suffice(config, corpora)
    ):
        say(console, "tokenizer: words (nearly all words of the targets are frequent, or can be copied)")
        tokenizer = tokenizer.model_copy(update={"kind": "words"})
        update["training"] = _settle_training(config.training, console)
    return config.model_copy(update={**update, "tokenizer": tokenizer})


def _do_words_suffice(config: TranslateConfig, corpora: Sequence[Corpus]) -> bool:
    """Tell whether a vocabulary of words has nearly all words of targets that their sources don't have."""
    size = config.tokenizer.vocabulary_size
    num_texts = Counter[str]()
    for corpus in corpora:
        for pair in corpus.pairs():
            num_texts.update({*pair.source.split(), *pair.target.split()})
    frequent = {word for word, count in num_texts.most_common(MOST_TOKENS if size == "auto" else size) if count > 1}
    num_words = num_known = 0
    for corpus in corpora:
        for pair in corpus.pairs():
            words, own = pair.target.split(), set(pair.source.split())
            num_words += len(words)
            num_known += sum(word in frequent or word in own for word in words)
    return num_known > NEARLY_ALL * num_words


def _settle_training(training: TranslateTraining, console: Console) -> TranslateTraining:
    """Return how such a model learns, where that was left open: slowly, and as a moving average."""
    update: dict[str, float] = {}
    if training.learning_rate == "auto":
        update["learning_rate"] = RATE
    if "ema" not in training.model_fields_set:
        update["ema"] = AVERAGE
    if update:
        said = ", ".join(f"{name}: {value:g}" for name, value in update.items())
        say(console, f"{said} (for summaries of words, which are soon known by heart)")
    return training.model_copy(update=update)


def _may_copy(config: TranslateConfig) -> bool:
    """Return True if nothing that is set stands against copying, or against an RNN."""
    training, tokenizer = config.training, config.tokenizer
    is_plain = config.base is None and config.features is None and not config.data.terms
    is_one = tokenizer.shared is not False and not tokenizer.describes_sides and tokenizer.kind != "listed"
    others = (training.consistency, training.shard, training.recompute, training.batches == "packed")
    return is_plain and is_one and not any(others)
