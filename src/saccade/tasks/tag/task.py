"""The tag task: from a config to a run, to a trained tagger, and to its part of the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from markupsafe import Markup, escape
from rich.console import Console

from saccade.data.batches import ShuffledBatches
from saccade.data.tags.columns import TaggedSentence
from saccade.data.tags.lexicon import Lexicon
from saccade.data.tags.spans import convert_tags, find_spans, span_scores
from saccade.data.tags.tagged import RepairedSentences, tag_set
from saccade.errors import UserError
from saccade.inspection.pages.render import render_table
from saccade.tasks.base import DataCount, InheritedFields, Job, ReportPart, Route, Rows, ScoredSet, Task, match_rows
from saccade.tasks.devices import load_trained
from saccade.tasks.tag import networks
from saccade.tasks.tag.config import PairedFiles, TagConfig, TagOptions
from saccade.tasks.tag.data import (
    columns_of,
    hash_files,
    load_vectors,
    put_vectors,
    read_set_files,
    read_sets,
    say_sizes,
)
from saccade.tasks.tag.loss import collate, tag_loss
from saccade.tasks.tag.predictor import Tagger, TagResult, evaluation
from saccade.tasks.tally import Tally

LEXICON = "tokenizer.words.json"
NUM_MISTAKES = 30
NUM_WORST = 10


def prepare(config: TagConfig, folder: Path, console: Console) -> Job:
    """Prepare a run; all files are read first, so that a mistake shows before anything is learned."""
    section = config.model
    sets = read_sets(config)
    say_sizes(config, sets, console)
    train, valid = sets.repaired["data.train"], sets.repaired["data.valid"]
    has_own_vectors = section.vectors is not None and config.base is None
    vectors = load_vectors(config, console) if has_own_vectors else None
    lexicon = _lexicon(config, train, sets.spelling, folder)
    if vectors is not None:
        lexicon = lexicon.with_words(vectors.words)
    torch.manual_seed(config.seed)
    network = networks.network(section, lexicon)
    network.features.unknown_share_V = networks.unknown_share(section.word_dropout, lexicon, train.sentences)
    if vectors is not None:
        put_vectors(vectors, network, lexicon)
    tagger = Tagger(network, lexicon)
    rows = list(tagger.read_together(train.sentences))
    return Job(
        network=network,
        plan=ShuffledBatches(
            len(rows),
            size=config.training.batch_size,
            seed=config.seed,
            load=lambda chosen: collate(lexicon, [rows[row] for row in chosen]),
        ),
        loss=partial(tag_loss, network),
        validate=_Validator(config, tagger, valid).measure,
        data=hash_files(config),
        stored={LEXICON: lexicon.to_json()},
        counts=[DataCount(name, len(part.sentences)) for name, part in sets.repaired.items()],
        rows=partial(_rows, lexicon.tags),
        portable=tagger.portable(),
    )


def _lexicon(config: TagConfig, train: RepairedSentences, spelling: str | None, folder: Path) -> Lexicon:
    """Learn the words and tags of the training text; a run that begins with another one has the words of that."""
    tags, least = tag_set(train.sentences, spelling), config.model.min_count
    if config.base is None:
        return Lexicon.learn(train.sentences, tags, spelling=spelling, min_count=least)
    own = folder / LEXICON
    kept = Lexicon.load(own if own.exists() else Path(config.base) / LEXICON)
    return replace(kept, tags=tags, spelling=spelling)


def _rows(tags: list[str], base: Path) -> dict[str, tuple[Rows, ...]]:
    """Return the rows of the tags that the run it begins with has, too; of their chain also those of its edges."""
    earlier = Lexicon.load(base / LEXICON).tags
    rows = match_rows(tags, earlier)
    chain = [*rows, [len(earlier)]]
    return {"output.weight": (rows,), "output.bias": (rows,), "chain.transition": (chain, chain)}


def load(config: TagConfig, folder: Path) -> Tagger:
    """Load a trained run, ready to predict."""
    lexicon = Lexicon.load(folder / LEXICON)
    network = load_trained(networks.network(config.model, lexicon), config, folder)
    return Tagger(network, lexicon, columns_of(config), is_paired=isinstance(config.data.train, PairedFiles))


def examine(config: TagConfig, tagger: Tagger) -> ReportPart:
    """Report on a trained run, on its test set or, where there is none, the validation set."""
    name, gold = scored_set(config, tagger)
    found, has_spans = tagger.predict(gold), tagger.lexicon.spelling is not None
    scores = evaluation([one.tags for one in gold], [one.tags for one in found], has_spans=has_spans).scores
    mark = _mark_spans if has_spans else _mark_tags
    marked = [(mark(one), mark(other)) for one, other in zip(gold, found, strict=True)]
    wrong = [(*pair, one) for pair, one in zip(marked, found, strict=True) if pair[0] != pair[1]]
    some = [row[:2] for row in wrong[:: max(1, len(wrong) // NUM_MISTAKES)][:NUM_MISTAKES]]
    caption = f"Some of the {len(wrong):,} sentences of {len(gold):,} that it gets wrong"
    head = ["It should be", "It found"]
    sections = [("Mistakes", render_table(caption, head, some))]
    if wrong:
        worst = sorted(wrong, key=lambda row: -row[2].log_probability)[:NUM_WORST]
        cells = [(right, given, f"{math.exp(one.log_probability):.2f}") for right, given, one in worst]
        sure = "The mistakes it was most certain of"
        sections.append(("Worst outputs", render_table(sure, [*head, "Probability"], cells)))
    return ReportPart(name, scores, sections, _tally(gold, found, has_spans=has_spans))


def _tally(gold: Sequence[TaggedSentence], found: Sequence[TagResult], *, has_spans: bool) -> Tally:
    pairs = [(one.tags, other.tags) for one, other in zip(gold, found, strict=True)]
    if not has_spans:
        right = [[sum(map(str.__eq__, true, given)), len(true)] for true, given in pairs]
        return Tally("accuracy", np.array(right, float))
    totals = [span_scores(*([convert_tags(tags, "bio")] for tags in pair))[0] for pair in pairs]
    return Tally("f1", np.array([[2 * one.num_right, one.num_gold + one.num_found] for one in totals], float))


def scored_set(config: TagConfig, tagger: Tagger) -> ScoredSet:
    """Return the sentences of the test set, or of the validation set where there is none."""
    del tagger
    name = "test" if config.data.test else "valid"
    return ScoredSet(name, [one for file in read_set_files(config)[f"data.{name}"] for one in file.sentences])


class _Validator:
    """Validation by tagging, and the loss of the tags that the model knows."""

    def __init__(self, config: TagConfig, tagger: Tagger, valid: RepairedSentences) -> None:
        self.tagger, self.sentences, self.metric = tagger, valid.sentences, config.training.metric
        known = set(tagger.lexicon.tags)
        usable = [one for one in valid.sentences if known.issuperset(one.tags)]
        if not usable:
            raise UserError("data.valid: every sentence has a tag that is not in data.train")
        groups = list(tagger.read_together(usable))
        size = config.training.batch_size
        self.batches = [collate(tagger.lexicon, groups[start : start + size]) for start in range(0, len(groups), size)]

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Compute F1, precision and recall of spans, accuracy, loss; "score" is the chosen one, higher is better."""
        network, has_spans = self.tagger.network, self.tagger.lexicon.spelling is not None
        device = next(network.parameters()).device
        loss = sum(float(tag_loss(network, batch.to(device))[1]) for batch in self.batches)
        mean = loss / sum(batch.num_items for batch in self.batches)
        found = [one.tags for one in self.tagger.stream(self.sentences)]
        scores = evaluation([one.tags for one in self.sentences], found, has_spans=has_spans).scores
        names = ("f1", "precision", "recall", "accuracy") if has_spans else ("accuracy",)
        metric = names[0] if self.metric == "auto" else self.metric
        score = -mean if metric == "loss" else scores[metric]
        return {"score": score, **{f"valid_{name}": scores[name] for name in names}, "valid_loss": mean}


def _mark_spans(one: TaggedSentence | TagResult) -> Markup:
    """Write the sentence with its spans in brackets."""
    words = [escape(word) for word in one.words]
    for kind, first, last in find_spans(one.tags):
        words[first] = Markup("<b>[{}").format(words[first])
        words[last] += Markup("]</b><small>{}</small>").format(kind)
    return Markup(" ").join(words)


def _mark_tags(one: TaggedSentence | TagResult) -> Markup:
    marked = Markup("{}<small>/{}</small>")
    return Markup(" ").join(marked.format(word, tag) for word, tag in zip(one.words, one.tags, strict=True))


INHERITED = InheritedFields(
    same=("model", "data.feature_columns"),
    free=("model.word_dropout", "model.dropout", "model.attention_dropout", "model.activation_dropout"),
)
ROUTE = Route("Tag words", options=TagOptions, by_word=True)
TAG = Task(TagConfig, prepare, load, examine, ROUTE, scored_set, inherited=INHERITED)
