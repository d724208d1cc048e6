"""The runs that copy words of their sources by themselves: those that sum up, from few texts."""

from __future__ import annotations

import itertools

from rich.console import Console

from saccade.tasks.console import say
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.corpora import first_pairs, training_corpora
from saccade.tasks.translate.networks import MOST_PAIRS, AutoModel
from saccade.tasks.translate.scoring.choice import choose_metric


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
    model = section.model_copy(update={"copies": True}).of_kind("rnn")
    return config.model_copy(update={"model": model, "tokenizer": config.tokenizer.model_copy(update={"shared": True})})


def _may_copy(config: TranslateConfig) -> bool:
    """Return True if nothing that is set stands against copying, or against an RNN."""
    training, tokenizer = config.training, config.tokenizer
    is_plain = config.base is None and config.features is None and not config.data.terms
    is_one = tokenizer.shared is not False and not tokenizer.describes_sides and tokenizer.kind != "listed"
    others = (training.consistency, training.shard, training.recompute, training.batches == "packed")
    return is_plain and is_one and not any(others)
