"""Labels: the config of a run, and from it to a network, its batches, its loss and its validation."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from rich.console import Console

from saccade.attention.scores import LOCATIONS
from saccade.config import base
from saccade.config.base import Positive, RunSection, Section, Share, with_kind
from saccade.data.batches import ShuffledBatches
from saccade.data.labels.labelled import Text
from saccade.data.labels.windows import RUN, EncodedTexts, encode_texts
from saccade.data.text.tokenizer import (
    MOST_CHARACTERS,
    SentencePiece,
    Vocabulary,
    load_tokenizer,
    sample_texts,
    tokenizer_file_name,
    train_tokenizer,
)
from saccade.errors import UserError
from saccade.inspection.draw.confusion import Confusion, articles, shaded
from saccade.models.classifier import TextClassifier
from saccade.tasks.base import Job, ReportPart, RequestOptions, Route, Task
from saccade.tasks.classify import networks
from saccade.tasks.classify import texts as labelled
from saccade.tasks.classify.networks import AnyModel, RecurrentClassifier
from saccade.tasks.classify.predictor import Classifier, Objective, Prediction, class_weights, loss_of, measure
from saccade.tasks.classify.texts import ClassifyData
from saccade.tasks.devices import trained

LABELS = "tokenizer.labels.json"  # learned from the training text, as the tokenizer is
NUM_SAMPLES = 8


class ClassifyTokenizer(Section):
    """How texts become ids."""

    kind: Literal["words", "unigram", "bpe", "characters"] = Field(
        default="words", description="White-space words, SentencePiece unigram or BPE, or characters."
    )
    vocabulary_size: Positive = Field(default=20_000, description="How many tokens there are, at most.")


class ClassifyTraining(base.TrainingSection):
    """How a classifier learns."""

    batch_size: Positive = Field(default=64, description="Texts a batch; of dialogues, as many in runs of neighbours.")
    label_smoothing: Share = 0.0
    consistency: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="Each text is read twice under other dropout, and so much of the answers' disagreement joins the "
        "loss (R-Drop, Wu 2021). It makes small sets go further, for twice the work.",
    )
    class_weights: Literal["balanced"] | dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] | None = Field(
        default=None, description="What a text of a label counts: label: weight (others 1), or balanced."
    )
    metric: Literal["accuracy", "macro_f1", "loss"] = Field(
        default="accuracy", description="What the best model is best at."
    )

    @field_validator("class_weights", mode="before")
    @classmethod
    def _names(cls, given: object) -> object:
        """A label that YAML reads as a number is still a name."""
        return {str(name): weight for name, weight in given.items()} if isinstance(given, dict) else given


class ClassifyConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["classify"]
    data: ClassifyData
    tokenizer: ClassifyTokenizer = ClassifyTokenizer()
    model: Annotated[AnyModel, Field(discriminator="kind")] = RecurrentClassifier()
    training: ClassifyTraining = ClassifyTraining()

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, given: object) -> object:
        """A model that doesn't say its kind is recurrent."""
        return with_kind(given, "model", "recurrent")

    @model_validator(mode="after")
    def _check(self) -> ClassifyConfig:
        asks = (self.model.pooling_score, getattr(self.model, "score", ""))
        if "location" in asks and self.data.max_length > LOCATIONS:
            wanted = f"the location score has a row for each of {LOCATIONS} positions, so it must be no more"
            raise ValueError(f"data.max_length: {self.data.max_length} given; {wanted}")
        return self


def prepare(config: ClassifyConfig, folder: Path, console: Console) -> Job:
    """Everything a run needs; all files are read first, so that a mistake shows before anything is learned."""
    sets = labelled.sets(config.data, config.seed)
    train, labels = sets["train"], _labels(config, sets["train"])
    tokenizer = _tokenizer(config, train, folder)
    network = _network(config, tokenizer, labels)
    predictor = _predictor(config, network, tokenizer, labels)
    encoded = {name: _encoded(predictor, texts) for name, texts in sets.items()}
    labelled.say(sets, encoded, labels, console)
    console.print(f"The vocabulary has {tokenizer.size:,} tokens.", highlight=False)
    mind = _objective(config, train, labels)
    return Job(
        network=network,
        plan=_plan(config, encoded["train"]),
        loss=partial(loss_of, network, mind=mind),
        validate=lambda: _validated(config, predictor, encoded["valid"]),
        data=[labelled.fingerprint(train)],
        stored={LABELS: json.dumps(labels, ensure_ascii=False)},
        unit="texts",
    )


def load(config: ClassifyConfig, folder: Path) -> Classifier:
    """A trained run, ready to predict."""
    (path,) = folder.glob("tokenizer.text.*")
    tokenizer, labels = load_tokenizer(path), json.loads((folder / LABELS).read_text("utf-8"))
    network = trained(_network(config, tokenizer, labels), config, folder)
    return _predictor(config, network, tokenizer, labels)


def examine(config: ClassifyConfig, predictor: Classifier) -> ReportPart:
    """What the report shows of a trained run, on its test set or, where there is none, the validation set."""
    name = "test" if config.data.test else "valid"
    texts = labelled.sets(config.data, config.seed)[name]
    has_weights = config.model.pooling != "last"
    found = predictor.predict(texts, attention=has_weights)
    counted = Confusion.of([text.label for text in texts], [one.label for one in found])
    scores = {"accuracy": counted.accuracy, "macro_f1": counted.macro_f1, "num_texts": len(texts)}
    parts = [("Confusion", counted.html()), ("Texts", _samples(texts, found))]
    return ReportPart(name, scores, parts)


def _labels(config: ClassifyConfig, texts: list[Text]) -> list[str]:
    labels = sorted({text.label for text in texts})
    if len(labels) < 2:
        raise UserError(f"data.train: {config.data.train} has one label, {labels[0]!r}; there must be two or more")
    return labels


def _tokenizer(config: ClassifyConfig, texts: list[Text], folder: Path) -> SentencePiece | Vocabulary:
    """From the run's folder, or learned from the training text and stored there."""
    for path in folder.glob("tokenizer.text.*"):
        return load_tokenizer(path)
    spelled = (config.data.spelling(text.text) for text in texts)
    chosen, section = sample_texts(spelled, most=MOST_CHARACTERS, seed=config.seed), config.tokenizer
    tokenizer = train_tokenizer(section.kind, chosen.texts, section.vocabulary_size, seed=config.seed)
    tokenizer.save(folder / tokenizer_file_name(tokenizer, "tokenizer.text"))
    return tokenizer


def _network(config: ClassifyConfig, tokenizer: SentencePiece | Vocabulary, labels: list[str]) -> TextClassifier:
    return networks.network(
        config.model,
        vocabulary=tokenizer.size,
        num_labels=len(labels),
        num_before=config.data.context,
        max_length=config.data.max_length,
        seed=config.seed,
    )


def _predictor(
    config: ClassifyConfig, network: TextClassifier, tokenizer: SentencePiece | Vocabulary, labels: list[str]
) -> Classifier:
    data = config.data
    return Classifier(network, tokenizer, labels, data.spelling, data.places, data.context, data.max_length)


def _encoded(predictor: Classifier, texts: list[Text]) -> EncodedTexts:
    return encode_texts(
        texts, predictor.encode, predictor.labels, context=predictor.context, max_length=predictor.max_length
    )


def _plan(config: ClassifyConfig, texts: EncodedTexts) -> ShuffledBatches:
    """Texts by chance; of dialogues, runs of neighbours, so that each text is encoded once for all who look back."""
    size = config.training.batch_size
    longest = min(RUN, size)
    runs = texts.runs(longest)
    per_batch = max(1, size // longest) if texts.context else size
    return ShuffledBatches(
        len(runs), size=per_batch, seed=config.seed, load=lambda rows: texts.batch([runs[row] for row in rows])
    )


def _objective(config: ClassifyConfig, texts: list[Text], labels: list[str]) -> Objective:
    training = config.training
    weight_V = class_weights(training.class_weights, texts, labels)
    return Objective(weight_V, training.label_smoothing, config.model.hop_penalty, training.consistency)


def _validated(config: ClassifyConfig, predictor: Classifier, texts: EncodedTexts) -> dict[str, float]:
    found = measure(predictor.network, texts, predictor.labels, texts_per_batch=predictor.texts_per_batch)
    metric = config.training.metric
    score = -found["valid_loss"] if metric == "loss" else found[f"valid_{metric}"]
    return {"score": score, **found}


def _samples(texts: list[Text], found: list[Prediction]) -> str:
    """Some texts, evenly spread, then the mistakes it was most certain of."""
    pairs = list(zip(texts, found, strict=True))
    step = max(1, len(pairs) // NUM_SAMPLES)
    wrong = [pair for pair in pairs if pair[0].label != pair[1].label]
    wrong.sort(key=lambda pair: -pair[1].probability)
    return articles(_article(*pair) for pair in [*pairs[::step][:NUM_SAMPLES], *wrong[:NUM_SAMPLES]])


def _article(text: Text, found: Prediction) -> tuple[str, str, str, str]:
    words = found.words if found.words is not None else text.text.split()
    weights = found.weights or [0.0] * len(words)
    return shaded(words, weights), text.label, found.label, f"probability {found.probability:.2f}"


class ClassifyOptions(RequestOptions):
    """What a request to a server may ask for."""

    attention: bool = Field(default=False, description="The weight of each word.")
    key_terms: int = Field(default=0, ge=0, le=100, description="How many of the words that weighed most.")


ROUTE = Route("Classify texts", options=ClassifyOptions, reads_whole=False)
CLASSIFY = Task(ClassifyConfig, prepare, load, examine, ROUTE)
