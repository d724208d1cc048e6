"""Texts to labels: a trained classifier in use, and how well it does."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast, final

import torch
from torch import Tensor, nn

from saccade.data.labels.documents import EncodedInputs, ReadingLimits, encode_inputs
from saccade.data.labels.labelled import (
    LabelColumns,
    Spelling,
    Text,
    clean_lines,
    parse_lines,
    read_labelled,
    split_labels,
)
from saccade.data.labels.windows import TextBatch
from saccade.data.text.corpus import clean, decode_lines, read_raw_lines
from saccade.data.text.tables import has_columns
from saccade.data.text.tokenizer import Tokenizer
from saccade.errors import UserError
from saccade.inspection.draw.confusion import Confusion, LabelCounts
from saccade.inspection.insight import Insight, Map, TextSide
from saccade.inspection.record import recording
from saccade.inspection.trust.cases import TextAndAnswer, TrustTest, make_case
from saccade.inspection.trust.evidence import TrustCase
from saccade.inspection.trust.subjects import ClassifierSubject
from saccade.models.classifier import ClassifierOutput, TextClassifier
from saccade.tasks.base import Evaluation, Predictor, ScoredSet, Traits, Watch, pass_on, several
from saccade.tasks.classify.loss import negative_log_likelihood
from saccade.tasks.classify.portable import PortableClassifier
from saccade.tasks.classify.result import KeyTerm, Prediction, rank_terms
from saccade.tasks.classify.words import WordWeights, average_weights, weigh_words
from saccade.tasks.texts import LongTextWarning

PEEK = 100  # lines that say what a file holds
WINDOW = 2048  # texts that are read before the first is judged
SIDES = {"pooling": ("label", "source"), "encoder": ("source", "source")}  # of each kind of attention


@torch.no_grad()
def classify_batches(
    network: TextClassifier, texts: EncodedInputs, texts_per_batch: int
) -> Iterator[tuple[TextBatch, ClassifierOutput, list[int]]]:
    """Judge every text once, in batches with their rows."""
    device = next(network.parameters()).device
    for given, rows in texts.batches(texts_per_batch):
        batch = given.to(device)
        yield batch, network(batch), rows


def measure(
    network: TextClassifier, texts: EncodedInputs, labels: Sequence[str], *, texts_per_batch: int
) -> dict[str, float]:
    """Compute accuracy and macro-F1 in percent, and the mean negative log-likelihood of the labels the model knows."""
    loss, found, true = 0.0, list[str](), list[str]()
    for batch, judged, _ in classify_batches(network, texts, texts_per_batch):
        loss += float(negative_log_likelihood(judged.logits_BV, batch.label_B))
        found += [labels[index] for index in judged.logits_BV.argmax(-1).tolist()]
        true += [labels[index] if index >= 0 else "" for index in batch.label_B.tolist()]
    counted = Confusion.of(true, found)
    known = max(1, int((texts.label >= 0).sum()))
    return {"valid_loss": loss / known, "valid_accuracy": counted.accuracy, "valid_macro_f1": counted.macro_f1}


def measure_several(
    network: TextClassifier,
    texts: EncodedInputs,
    labels: Sequence[str],
    *,
    texts_per_batch: int,
    threshold: float,
) -> dict[str, float]:
    """Compute micro-F1, macro-F1, exactly right sets (percent), the mean negative log-likelihood of a text's labels."""
    loss, found, true = 0.0, list[list[str]](), list[list[str]]()
    for batch, judged, _ in classify_batches(network, texts, texts_per_batch):
        loss += float(negative_log_likelihood(judged.logits_BV, batch.label_B))
        for named, marks_BV in ((found, judged.logits_BV.sigmoid() >= threshold), (true, batch.label_B > 0)):
            named += [[label for label, has in zip(labels, row, strict=True) if has] for row in marks_BV.tolist()]
    counted = LabelCounts.of(true, found)
    names = ("micro_f1", "macro_f1", "accuracy")
    return {"valid_loss": loss / len(texts), **{f"valid_{name}": getattr(counted, name) for name in names}}


class TextProbabilities(NamedTuple):
    """A model's probabilities of labels [V] for a text, and on request the weights of its words."""

    probability_V: Tensor
    weighed: WordWeights | None


@final
@dataclass(frozen=True)
class Classifier(Predictor):
    """A trained model that gives texts labels, as `saccade.load` returns it.

    Inputs are strings, or `Text`s that say which dialogue they belong to and who spoke: neighbours in a dialogue are
    read as context. `attention=True` returns the weight of each word, `key_terms=5` the five that weighed most.
    """

    network: TextClassifier
    tokenizer: Tokenizer
    labels: list[str]
    spelling: Spelling
    columns: LabelColumns
    context: int = 0
    max_length: int = 256
    max_sentences: int | None = None  # where texts are documents
    texts_per_batch: int = 256
    threshold: float = 0.5  # of several labels at once
    others: tuple[Classifier, ...] = ()  # of an ensemble
    engine: str = "torch"  # that runs its text encoder

    @property
    def is_several(self) -> bool:
        """Return True if a text may have several labels at once."""
        return self.columns.separator is not None

    @property
    def limits(self) -> ReadingLimits:
        return ReadingLimits(self.context, self.max_length, self.max_sentences)

    @property
    def traits(self) -> Traits:
        return Traits(
            "classify",
            kinds=tuple(SIDES) if self.max_sentences is None else ("pooling",),
            predict_options=("attention", "key_terms", "window", *(("threshold",) if self.is_several else ())),
            evaluate_options=("threshold",) if self.is_several else (),
            look_options=("kinds", "norms") if self.max_sentences is None else ("kinds",),
            evidence={"attention": True},
            context=self.context,
            labels=self.labels,
            answers="label",
            texts=None if self.max_sentences is None else "documents",
        )

    def predict(
        self,
        inputs: Iterable[str | Text],
        *,
        attention: bool = False,
        key_terms: int = 0,
        threshold: float | None = None,
    ) -> list[Prediction]:
        """Predict each input's label; of several labels at once, those with at least `threshold` (the run's)."""
        return list(self.stream(inputs, attention=attention, key_terms=key_terms, threshold=threshold))

    def stream(
        self,
        inputs: Iterable[str | Text],
        *,
        attention: bool = False,
        key_terms: int = 0,
        threshold: float | None = None,
        window: int = WINDOW,
    ) -> Iterator[Prediction]:
        """Yield predictions in memory that doesn't grow; the end of a window is the context of the next."""
        if key_terms < 0:
            raise UserError(f"key_terms: {key_terms} given; it must be 0 or more")
        if threshold is not None:
            yield from self._with_threshold(threshold).stream(
                inputs, attention=attention, key_terms=key_terms, window=window
            )
            return
        texts = map(self._as_text, several(inputs))
        before: list[Text] = []
        while part := list(itertools.islice(texts, window)):
            seen = [*before, *part]
            yield from self._judge(seen, len(before), bool(attention or key_terms), key_terms)
            before = seen[max(0, len(seen) - self.context) :]

    @torch.no_grad()
    def look(
        self, inputs: Iterable[str | Text], *, kinds: Collection[str] = ("pooling",), norms: bool = False
    ) -> list[Insight]:
        """Return what the model saw of each input; `kinds` of attention are pooling and, in a Transformer, encoder."""
        self._refuse_several("look")
        texts = [self._as_text(given) for given in several(inputs)]
        if self.max_sentences is not None:
            return [self._look_at_document(text, kinds) for text in texts]
        return [self._look(texts[max(0, row - self.context) : row + 1], kinds, norms) for row in range(len(texts))]

    def _look(self, texts: list[Text], kinds: Collection[str], norms: bool) -> Insight:
        """Look at the last of some texts, with those before it as context."""
        batch = (
            self.encode_all(texts).batch([range(len(texts) - 1, len(texts))]).to(next(self.network.parameters()).device)
        )
        with recording(self.network, kinds=kinds, norms=norms) as record:
            judged = self.network(batch)
        own = int(batch.window_BW[0, batch.window_length_B[0] - 1])
        length = int(batch.length_U[own])
        answer = self._name_labels(self._shares(judged)[0])
        text, pieces = texts[-1].text, self.tokenizer.pieces(batch.ids_US[own, :length].tolist())
        source, label = TextSide.of(text, pieces, self.tokenizer.begins_word), TextSide.of(answer.label, [answer.label])
        maps = {
            kind: Map(
                *SIDES[kind],
                record.weights(kind)[:, own, :, :length, :length].float().cpu(),
                record.norms(kind)[:, own, :, :length, :length].float().cpu() if norms else None,
            )
            for kind in record.kinds
        }
        return Insight(self.traits.task, answer, {"source": source, "label": label}, maps)

    def _look_at_document(self, text: Text, kinds: Collection[str]) -> Insight:
        """Look at a document: the label reads all words, those of a sentence by what the sentence weighs."""
        if set(kinds) - {"pooling"}:
            raise UserError(f"kinds: {min(set(kinds) - {'pooling'})!r} given; of documents one sees pooling")
        (answer,) = self.predict([text], attention=True)
        words = answer.words or []
        source, label = TextSide.of(text.text, words), TextSide.of(answer.label, [answer.label])
        assert answer.attention is not None
        maps = {"pooling": Map(*SIDES["pooling"], answer.attention[None, :, None])}
        return Insight(self.traits.task, answer, {"source": source, "label": label}, maps, draws_itself=True)

    def key_terms(self, text: str | Text, count: int = 5) -> list[KeyTerm]:
        """Return the words of a document that carried the decision, the heaviest first (Shen & Lee 2016, section 4)."""
        return self.predict([text], key_terms=count)[0].key_terms or []

    def read(self, source: Path | None) -> Iterator[Text]:
        """Read the inputs of a file: with columns as in training, its label not needed; else a text a line."""
        if source is not None and has_columns(source):
            return read_labelled([source], self.columns, needs_label=False)
        if source is not None and self._begins_with_labels(source):
            return self._read_label_first(source)
        lines = decode_lines("standard input", sys.stdin.buffer) if source is None else read_raw_lines(source)
        return parse_lines(lines, as_dialogue=self.context > 0)

    def read_targets(self, path: Path) -> Iterator[str]:
        if has_columns(path):
            return (text.label for text in read_labelled([path], self.columns))
        return super().read_targets(path)

    def evaluate(self, paths: Sequence[Path], *, watch: Watch = pass_on, threshold: float | None = None) -> Evaluation:
        """Compute accuracy, macro-F1 and the confusion of labelled files; `watch` sees predictions go by.

        Of several labels at once, micro-F1 too, and each label's scores in place of a confusion.
        """
        texts = list(read_labelled(paths, self.columns))
        counted = self.count(texts, list(watch(self.stream(texts, threshold=threshold), len(texts))))
        scores = {"num_texts": len(texts), **counted.scores()}
        said = f"{len(texts):,} texts: accuracy {counted.accuracy:.2f}, macro F1 {counted.macro_f1:.2f}"
        if isinstance(counted, LabelCounts):
            totals = f"micro F1 {counted.micro_f1:.2f}, macro F1 {counted.macro_f1:.2f}"
            said = f"{len(texts):,} texts: {totals}, exactly the right labels {counted.accuracy:.2f}"
        unknown = sorted({label for text in texts for label in self.labels_of(text)} - set(self.labels))
        never = [f"Labels that the model never saw, which count as wrong: {', '.join(unknown)}"] if unknown else []
        draw = counted.draw if isinstance(counted, Confusion) else None
        return Evaluation(scores, [said, *never, "", *counted.lines()], draw)

    def count(self, texts: Sequence[Text], found: Sequence[Prediction]) -> Confusion | LabelCounts:
        """Count right and wrong labels."""
        if self.is_several:
            return LabelCounts.of([self.labels_of(text) for text in texts], [one.labels or [] for one in found])
        return Confusion.of([text.label for text in texts], [one.label for one in found])

    def labels_of(self, text: Text) -> list[str]:
        """Return the true labels of a text."""
        return split_labels(text.label, self.columns.separator)

    def read_scored(self, source: Path, target: Path | None) -> ScoredSet:
        if target is not None:
            raise UserError("--target: given, but labels stand beside their texts; allowed: --input")
        return ScoredSet(source.name, list(read_labelled([source], self.columns)))

    def portable(self) -> PortableClassifier:
        self._refuse_several("export")
        return PortableClassifier(
            self.network,
            self.tokenizer,
            self.labels,
            self.spelling,
            self.columns,
            self.limits,
            self.threshold,
        )

    @property
    def has_readers(self) -> bool:
        return True

    def with_network(self, network: nn.Module, engine: str) -> Classifier:
        return replace(self, network=cast(TextClassifier, network), engine=engine)

    def trust_test(self) -> TrustTest:
        self._refuse_several("trust")
        if self.is_several:
            raise UserError("trust: this model gives several labels at once; allowed: one label for each text")
        if self.max_sentences is not None:
            raise UserError("trust: this model reads documents by their sentences; allowed: texts that are read as one")
        return TrustTest(ClassifierSubject(self.network), self._trust_cases)

    def _trust_cases(self, pairs: Sequence[TextAndAnswer]) -> Iterator[TrustCase]:
        """Yield cases whose answers are labels, the likeliest or given."""
        found = self.predict([text for text, _ in pairs])
        for (text, target), one in zip(pairs, found, strict=True):
            if target is not None and target not in self.labels:
                raise UserError(f"targets: the label {target!r} given; allowed: {', '.join(self.labels)}")
            ids = self.encode(text)[: self.max_length]
            side = TextSide.of(text, self.tokenizer.pieces(ids), self.tokenizer.begins_word)
            yield make_case(side, ids, [self.labels.index(target or one.label)])

    def _begins_with_labels(self, source: Path) -> bool:
        """Return True if a file's first lines all begin with a label, as files to learn from do (without columns)."""
        if self.columns._replace(separator=None) != LabelColumns():
            return False
        first = (
            line.partition(" ") for line in itertools.islice(filter(None, map(clean, read_raw_lines(source))), PEEK)
        )
        known = set(self.labels)
        split = [(set(split_labels(label, self.columns.separator)), text) for label, _, text in first]
        return bool(split) and all(labels and labels <= known and text for labels, text in split)

    def _read_label_first(self, source: Path) -> Iterator[Text]:
        warnings.warn(f"{source}: each line begins with a label, as in training; it is not read as text", stacklevel=2)
        return (text._replace(label="") for text in read_labelled([source], self.columns))

    def _as_text(self, given: str | Text) -> Text:
        """Return a text; the lines of a document are kept, since their ends end sentences."""
        if isinstance(given, Text):
            return given
        return Text(clean(given) if self.max_sentences is None else clean_lines(given))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, as it is spelled for the model."""
        return self.tokenizer.encode(self.spelling(text))

    def encode_all(self, texts: Sequence[Text]) -> EncodedInputs:
        """Encode what the model reads."""
        return encode_inputs(texts, self.encode, self.labels, self.limits, self.columns.separator)

    def _judge(self, texts: list[Text], num_before: int, with_weights: bool, key_terms: int) -> list[Prediction]:
        """Judge texts; the first of them, which were judged before, are their context."""
        encoded = self.encode_all(texts)
        if count := int(encoded.is_cut[num_before:].sum()):
            most = f"{self.max_length:,} tokens; the rest of them is not read (data.max_length)"
            if self.max_sentences is not None:
                most = f"{self.max_sentences:,} sentences; the rest of them is not read (data.max_sentences)"
            said = f"{count:,} of {len(texts) - num_before:,} texts have more than {most}"
            warnings.warn(said, LongTextWarning, stacklevel=2)
        told = [member._tell(texts, with_weights) for member in (self, *self.others)]
        joined = (self._join(same, key_terms) for same in list(zip(*told, strict=True))[num_before:])
        cut = encoded.is_cut[num_before:].tolist()
        return [one._replace(is_cut=is_cut) for one, is_cut in zip(joined, cut, strict=True)]

    def _tell(self, texts: list[Text], with_weights: bool) -> list[TextProbabilities]:
        """Return what this model alone says of texts."""
        found: dict[int, TextProbabilities] = {}
        weigh = partial(weigh_words, spelling=self.spelling, tokenizer=self.tokenizer)
        for batch, judged, rows in classify_batches(self.network, self.encode_all(texts), self.texts_per_batch):
            probability_BV = self._shares(judged)
            for index, row in enumerate(rows):
                weighed = weigh(texts[row].text, batch, judged, index) if with_weights else None
                found[row] = TextProbabilities(probability_BV[index], weighed)
        return [found[row] for row in range(len(texts))]

    def _join(self, told: Sequence[TextProbabilities], key_terms: int) -> Prediction:
        """Return the prediction of one model, or of the mean of several."""
        one = self._name_labels(torch.stack([each.probability_V for each in told]).mean(0))
        if not (weights := [each.weighed for each in told if each.weighed is not None]):
            return one
        weighed = average_weights(weights)
        one = one._replace(words=weighed.words, attention=weighed.weight_TW, sentences=weighed.sentences)
        return one._replace(key_terms=rank_terms(weighed.words, one.weights)[:key_terms]) if key_terms else one

    @classmethod
    def ensemble(cls, runs: Sequence[tuple[str, Predictor]]) -> Classifier:
        """Give the mean of several runs' probabilities and weights; they must read texts and know labels alike."""
        found = list[Classifier]()
        for name, run in runs:
            if not isinstance(run, Classifier):
                raise UserError(f"{name}: it gives no labels to texts; an ensemble is of runs that do")
            found.append(run)
            alike = {
                "labels": lambda one: one.labels,
                "data.lowercase, data.split_punctuation": lambda one: one.spelling,
                "data.separator": lambda one: one.columns.separator,
                "data.context, data.max_length, data.max_sentences": lambda one: one.limits,
            }
            for what, value in alike.items():
                if value(run) != value(found[0]):
                    raise UserError(f"{name}: its {what} differ from those of {runs[0][0]}; an ensemble shares them")
        return replace(found[0], others=tuple(found[1:]))

    def _refuse_several(self, what: str) -> None:
        if self.others:
            raise UserError(f"{what}: given with an ensemble; allowed: one run")

    def _name_labels(self, probability_V: Tensor) -> Prediction:
        shares = dict(zip(self.labels, probability_V.tolist(), strict=True))
        ranked = sorted(shares, key=lambda label: -shares[label])
        if self.columns.separator is None:
            return Prediction(ranked[0], shares[ranked[0]], shares)
        given = [label for label in ranked if shares[label] >= self.threshold]
        least = shares[given[-1]] if given else 1 - shares[ranked[0]]
        return Prediction(self.columns.separator.join(given), least, shares, labels=given)

    def _shares(self, judged: ClassifierOutput) -> Tensor:
        """Return the probabilities of labels, [B, V]: of one of them, or of each by itself."""
        logits_BV = judged.logits_BV.float()
        return (logits_BV.sigmoid() if self.is_several else logits_BV.softmax(-1)).cpu()

    def _with_threshold(self, threshold: float) -> Classifier:
        if not self.is_several:
            raise UserError("threshold: given, but this model gives one label to each text")
        if not 0 <= threshold <= 1:
            raise UserError(f"threshold: {threshold} given; it must be 0 to 1")
        return replace(self, threshold=threshold)
