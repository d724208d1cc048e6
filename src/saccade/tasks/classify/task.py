"""The classify task: from a config to a run, to a trained classifier, and to its part of the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console

from saccade.data.batches import ShuffledBatches
from saccade.data.labels.documents import EncodedInputs
from saccade.data.labels.labelled import Text, split_labels
from saccade.data.labels.windows import RUN
from saccade.data.text.tokenizer import (
    MOST_CHARACTERS,
    AnyTokenizer,
    load_tokenizer,
    sample_texts,
    tokenizer_file_name,
    train_tokenizer,
)
from saccade.errors import UserError
from saccade.inspection.draw import document
from saccade.inspection.draw.confusion import LabelCounts, render_articles, shade_words
from saccade.models.classifier import TextClassifier
from saccade.tasks.base import DataCount, InheritedFields, Job, ReportPart, Route, Rows, ScoredSet, Task, match_rows
from saccade.tasks.classify import networks
from saccade.tasks.classify import texts as labelled
from saccade.tasks.classify.config import (
    ClassifyConfig,
    ClassifyOptions,
    LabelledFiles,
)
from saccade.tasks.classify.loss import Objective, class_weights, classify_loss
from saccade.tasks.classify.predictor import Classifier, measure, measure_several
from saccade.tasks.classify.result import Prediction
from saccade.tasks.devices import load_trained
from saccade.tasks.mixing import mix_old, settle_old
from saccade.tasks.tally import Tally
from saccade.tasks.texts import read_long_texts
from saccade.tasks.vocabulary import find_grown_rows, prepare_tokenizer

LABELS = "tokenizer.labels.json"  # learned from the training text, as the tokenizer is
NUM_SAMPLES = 8
TEXTS_PER_BATCH, DOCUMENTS_PER_BATCH = 256, 32


def prepare(config: ClassifyConfig, folder: Path, console: Console) -> Job:
    """Prepare a run; all files are read first, so that a mistake shows before anything is learned."""
    config = settle_old(config, LabelledFiles)
    sets = labelled.read_sets(config.data)
    tokenizer = _tokenizer(config, sets["train"], folder, console)
    train = mix_old(config, sets["train"], lambda data: labelled.read_sets(data)["train"], console, what="texts")
    sets["train"], labels = train, _labels(config, train)
    network = _network(config, tokenizer, labels)
    predictor = _predictor(config, network, tokenizer, labels)
    encoded = {name: predictor.encode_all(texts) for name, texts in sets.items()}
    labelled.say(sets, encoded, labels, config.data, console)
    console.print(f"The vocabulary has {tokenizer.size:,} tokens.", highlight=False)
    objective = _objective(config, train, labels)
    return Job(
        config=config,
        network=network,
        plan=_plan(config, encoded["train"]),
        loss=partial(classify_loss, network, objective=objective),
        validate=lambda: _make_validation(config, predictor, encoded["valid"]),
        data=[labelled.fingerprint(train)],
        stored={LABELS: json.dumps(labels, ensure_ascii=False)},
        unit="texts",
        counts=[DataCount(f"data.{name}", len(texts)) for name, texts in sets.items()],
        rows=lambda base: _rows(config, labels, folder, base),
        portable=predictor.portable(),
    )


def _rows(config: ClassifyConfig, labels: list[str], folder: Path, base: Path) -> dict[str, tuple[Rows, ...]]:
    """Return the rows of a grown vocabulary, and of the labels that the run it begins with has, too."""
    rows = match_rows(labels, json.loads((base / LABELS).read_text("utf-8")))
    grown = find_grown_rows(config, _tokenizer_path(config, folder), "embedding.weight")
    return {**grown, "output.weight": (rows,), "output.bias": (rows,)}


def load(config: ClassifyConfig, folder: Path) -> Classifier:
    """Load a trained run, ready to predict."""
    tokenizer = load_tokenizer(_tokenizer_path(config, folder))
    labels = json.loads((folder / LABELS).read_text("utf-8"))
    network = load_trained(_network(config, tokenizer, labels), config, folder)
    return _predictor(config, network, tokenizer, labels)


@read_long_texts()
def examine(config: ClassifyConfig, predictor: Classifier) -> ReportPart:
    """Report on a trained run, on its test set or, where there is none, the validation set."""
    name, texts = scored_set(config, predictor)
    has_weights = config.model.pooling != "last"
    found = predictor.predict(texts, attention=has_weights)
    counted = predictor.count(texts, found)
    scores = {"accuracy": counted.accuracy, "macro_f1": counted.macro_f1, "num_texts": len(texts)}
    if isinstance(counted, LabelCounts):
        scores = {"micro_f1": counted.micro_f1, **scores}
    heading = "Labels" if isinstance(counted, LabelCounts) else "Confusion"
    pairs = list(zip(texts, found, strict=True))
    parts = [(heading, counted.html()), ("Texts", _render(pairs[:: max(1, len(pairs) // NUM_SAMPLES)][:NUM_SAMPLES]))]
    if wrong := [pair for pair in pairs if pair[0].label != predictor.columns.tidy(pair[1].label)]:
        wrong.sort(key=lambda pair: -pair[1].probability)
        parts.append(("Worst outputs: the mistakes it was most certain of", _render(wrong[:NUM_SAMPLES])))
    return ReportPart(name, scores, parts, _tally(predictor, pairs))


def _tally(predictor: Classifier, pairs: Sequence[tuple[Text, Prediction]]) -> Tally:
    if not predictor.is_several:
        right = [[float(text.label == predictor.columns.tidy(found.label)), 1.0] for text, found in pairs]
        return Tally("accuracy", np.array(right))
    both = [({*predictor.labels_of(text)}, {*(found.labels or [])}) for text, found in pairs]
    return Tally("micro_f1", np.array([[2.0 * len(true & given), len(true) + len(given)] for true, given in both]))


def scored_set(config: ClassifyConfig, predictor: Classifier) -> ScoredSet:
    """Return the texts of the test set, or of the validation set where there is none."""
    del predictor
    name: Literal["valid", "test"] = "test" if config.data.test else "valid"
    return ScoredSet(name, labelled.read_scored(config.data, name))


def _labels(config: ClassifyConfig, texts: list[Text]) -> list[str]:
    labels = sorted({label for text in texts for label in split_labels(text.label, config.data.separator)})
    if len(labels) < 2:
        few = f"one label, {labels[0]!r}" if labels else "no label"
        raise UserError(f"data.train: {config.data.train} has {few}; there must be two or more")
    return labels


def _tokenizer(config: ClassifyConfig, texts: list[Text], folder: Path, console: Console) -> AnyTokenizer:
    """Return the run's tokenizer, or learn it from the training text."""
    section = config.tokenizer

    def learn(spelled: Iterable[str]) -> AnyTokenizer:
        chosen = sample_texts(spelled, most=MOST_CHARACTERS, seed=config.seed)
        return train_tokenizer(section.kind, chosen.texts, section.vocabulary_size, seed=config.seed)

    spelled = (config.data.spelling(text.text) for text in texts)
    return prepare_tokenizer(config, _tokenizer_path(config, folder), spelled, learn, console)


def _tokenizer_path(config: ClassifyConfig, folder: Path) -> Path:
    return folder / tokenizer_file_name(config.tokenizer.kind, "tokenizer.text")


def _network(config: ClassifyConfig, tokenizer: AnyTokenizer, labels: list[str]) -> TextClassifier:
    return networks.network(
        config.model,
        vocabulary=tokenizer.size,
        num_labels=len(labels),
        limits=config.limits,
        seed=config.seed,
    )


def _predictor(
    config: ClassifyConfig, network: TextClassifier, tokenizer: AnyTokenizer, labels: list[str]
) -> Classifier:
    data = config.data
    return Classifier(
        network,
        tokenizer,
        labels,
        data.spelling,
        data.places,
        *config.limits,
        texts_per_batch=TEXTS_PER_BATCH if config.model.sentences is None else DOCUMENTS_PER_BATCH,
        threshold=config.decoding.threshold,
    )


def _plan(config: ClassifyConfig, texts: EncodedInputs) -> ShuffledBatches:
    """Draw texts by chance; of dialogues, runs of neighbours: each text is encoded once for all who look back."""
    size = config.training.batch_size
    longest = min(RUN, size)
    runs = texts.runs(longest)
    per_batch = max(1, size // longest) if texts.context else size
    return ShuffledBatches(
        len(runs), size=per_batch, seed=config.seed, load=lambda rows: texts.batch([runs[row] for row in rows])
    )


def _objective(config: ClassifyConfig, texts: list[Text], labels: list[str]) -> Objective:
    training = config.training
    weight_V = class_weights(training.class_weights, texts, labels, config.data.separator)
    return Objective(weight_V, training.label_smoothing, config.model.hop_penalty, training.consistency)


def _make_validation(config: ClassifyConfig, predictor: Classifier, texts: EncodedInputs) -> dict[str, float]:
    given = (predictor.network, texts, predictor.labels)
    size = predictor.texts_per_batch
    if predictor.is_several:
        found = measure_several(*given, texts_per_batch=size, threshold=predictor.threshold)
    else:
        found = measure(*given, texts_per_batch=size)
    metric = config.training.metric
    if metric == "auto":
        metric = "micro_f1" if predictor.is_several else "accuracy"
    score = -found["valid_loss"] if metric == "loss" else found[f"valid_{metric}"]
    return {"score": score, **found}


def _render(pairs: list[tuple[Text, Prediction]]) -> str:
    return render_articles(_article(*pair) for pair in pairs)


def _article(text: Text, found: Prediction) -> tuple[str, str, str, str]:
    words = found.words if found.words is not None else text.text.split()
    weights = found.weights or [0.0] * len(words)
    shaded = shade_words(words, weights) if found.document is None else document.render_html(found.document)
    return shaded, text.label, found.label, f"probability {found.probability:.2f}"


ROUTE = Route("Classify texts", options=ClassifyOptions, reads_whole=False)
INHERITED = InheritedFields(
    same=("model", "tokenizer", "data.lowercase", "data.split_punctuation", "data.context"),
    free=(
        "model.word_dropout",
        "model.embedding_dropout",
        "model.dropout",
        "model.attention_dropout",
        "model.activation_dropout",
        "model.hop_penalty",
        "tokenizer.grow",
    ),
    usual=("data.max_length", "data.max_sentences"),
    anew=("tokenizer.grow",),
)
CLASSIFY = Task(ClassifyConfig, prepare, load, examine, ROUTE, scored_set, inherited=INHERITED)
