"""The sections of a classify config, and what a request to a server may say."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from saccade.config import base
from saccade.config.base import (
    Columns,
    Grow,
    NormalizerName,
    OldShare,
    OrAuto,
    Place,
    Positive,
    RunSection,
    ScoreName,
    Section,
    Share,
    fill_kind,
)
from saccade.config.fields import FileFields, RecurrentFields, TransformerFields, check_location, refuse_unused
from saccade.data.labels import labelled
from saccade.data.labels.documents import ReadingLimits
from saccade.data.labels.labelled import Spelling
from saccade.models.text_encoder import BagEncoder, TextEncoder, TransformerTextEncoder
from saccade.tasks.base import RequestOptions


class ColumnNames(Columns):
    """The columns of a file: names from its header or JSON keys, or positions from 0 where there is no header."""

    label: Place = "label"
    text: Place = "text"
    dialogue: Place | None = Field(default=None, description="Which dialogue a text belongs to.")
    speaker: Place | None = Field(default=None, description="Who said it.")


class LabelledFiles(FileFields):
    """Files of labelled texts, .tsv, .csv, .jsonl, or plain lines that begin with the label, and what they hold."""

    columns: ColumnNames = ColumnNames()
    separator: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Several labels at once, with this between them in a file (in JSONL perhaps a list), as in a,b. "
        "None: each text has one label.",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_share(cls, given: object) -> object:
        """Read what configs of older runs say: the share of train that is held out where `valid` is null."""
        if not isinstance(given, dict) or "valid_share" not in given:
            return given
        read = {name: value for name, value in given.items() if name != "valid_share"}
        return {**read, "valid": given["valid_share"] if read.get("valid") is None else read["valid"]}

    @property
    def places(self) -> labelled.LabelColumns:
        """The columns, as reading takes them."""
        return labelled.LabelColumns(**self.columns.model_dump(), separator=self.separator)


class ClassifyData(LabelledFiles):
    """The section that says where labelled texts come from, and how they are read."""

    old_share: OldShare = 0.0
    old: OrAuto[LabelledFiles] = Field(
        default="auto", description="Where old texts come from. auto: what the run of from has learned from."
    )
    lowercase: bool = False
    split_punctuation: bool = Field(default=False, description="Every sign outside a word is a word.")
    context: Annotated[int, Field(ge=0)] = Field(
        default=0, description="How many texts before it in its dialogue a text sees."
    )
    max_length: Positive = Field(
        default=256,
        description="A longer text is cut to so many tokens, and counted. Where texts are documents (model.sentences), "
        "a longer sentence is read in parts of so many.",
    )
    max_sentences: Positive = Field(
        default=128, description="Of a longer document only the first so many sentences are read, and it is counted."
    )

    @model_validator(mode="after")
    def _check(self) -> ClassifyData:
        if self.context and self.columns.dialogue is None:
            raise ValueError(f"context: {self.context} given; it needs the column of the dialogue (columns.dialogue)")
        if self.context and self.old_share:
            raise ValueError(f"old_share: {self.old_share} given; with context it must be 0: dialogues are not mixed")
        return self

    @property
    def spelling(self) -> Spelling:
        """Return the changes to texts before they are tokenised."""
        return Spelling(self.lowercase, self.split_punctuation)


class ClassifyTokenizer(Section):
    """The section that says how texts become ids."""

    kind: Literal["words", "unigram", "bpe", "characters"] = Field(
        default="words", description="White-space words, SentencePiece unigram or BPE, or characters."
    )
    vocabulary_size: Positive = Field(default=20_000, description="How many tokens there are, at most.")
    grow: Grow = 0


class PoolingFields(Section):
    """Settings of pooling: how the vectors of a text's tokens, or of a document's sentences, become one."""

    pooling: Literal["mean", "last", "max", "attention", "structured"] = Field(
        default="attention", description="How the vectors of a text's tokens (or of sentences) become one."
    )
    pooling_score: ScoreName = Field(
        default="additive", description="How attention pooling's query asks a token (or a sentence)."
    )
    pooling_normalizer: NormalizerName = "softmax"
    num_hops: Positive = Field(default=4, description="Of structured self-attention: how many weighted sums.")
    hop_width: Positive = Field(default=64, description="Of its hidden layer.")

    @model_validator(mode="after")
    def _refuse_what_has_no_effect(self) -> Self:
        only = {
            "pooling_score": "attention",
            "pooling_normalizer": "attention",
            "num_hops": "structured",
            "hop_width": "structured",
        }
        reason = f"with pooling: {self.pooling}"
        refuse_unused(self, {name: None if self.pooling == needed else reason for name, needed in only.items()})
        return self


class RecurrentSentences(RecurrentFields, PoolingFields):
    """Reads the sentences of a document one after the other."""

    kind: Literal["recurrent"] = "recurrent"

    def encoder(self, input_width: int, dropout: float, most: int) -> TextEncoder:
        del most
        return self.layers(input_width, num_layers=self.num_layers, dropout=dropout)


class TransformerSentences(TransformerFields, PoolingFields):
    """Reads all sentences at once."""

    kind: Literal["transformer"]

    def encoder(self, input_width: int, dropout: float, most: int) -> TextEncoder:
        sizes = self.block_sizes(dropout)
        return TransformerTextEncoder(input_width, sizes, num_layers=self.num_layers, max_length=most, kind=None)


class BagSentences(PoolingFields):
    """Reads sentences in no order."""

    kind: Literal["bag"]

    def encoder(self, input_width: int, dropout: float, most: int) -> TextEncoder:
        del dropout, most
        return BagEncoder(input_width)


class ClassifierModel(PoolingFields):
    """Settings of every classifier: how words begin, how a text becomes one vector, and how it sees those before it."""

    embedding_width: Positive = Field(default=128, description="Of a token's vector.")
    hop_penalty: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.1, description="How much the loss minds that hops look at the same tokens (Lin 2017: 1)."
    )
    sentences: (
        Annotated[RecurrentSentences | TransformerSentences | BagSentences, Field(discriminator="kind")] | None
    ) = Field(
        default=None,
        description="Texts are documents: the model reads the words of each sentence, and this the sentences. None: a "
        "text is read as one.",
    )
    context: Literal["rnn", "gru", "lstm", "attention"] = Field(
        default="gru", description="What reads the vectors of a dialogue's last texts (data.context)."
    )
    context_width: Positive = Field(default=256, description="Of a recurrent context.")
    context_score: ScoreName = Field(default="additive", description="How a text asks those before it.")
    word_dropout: Share = Field(default=0.0, description="The share of tokens that are read as <unk> in training.")
    embedding_dropout: Share = 0.0
    dropout: Share = Field(default=0.3, description="Of a text's vector, and between layers.")

    @model_validator(mode="before")
    @classmethod
    def _default_sentences(cls, given: object) -> object:
        """Read sentences with a recurrent network, if no kind is given."""
        return fill_kind(given, "sentences", "recurrent")

    @model_validator(mode="after")
    def _refuse_context(self) -> Self:
        poolings = (self.pooling, None if self.sentences is None else self.sentences.pooling)
        reasons = {
            "context_score": None if self.context == "attention" else f"with context: {self.context}",
            "hop_penalty": None if "structured" in poolings else f"with pooling: {self.pooling}",
        }
        refuse_unused(self, reasons)
        return self


class RecurrentClassifier(RecurrentFields, ClassifierModel):
    """Reads a text step by step."""

    kind: Literal["recurrent"] = "recurrent"

    def encoder(self, max_length: int) -> TextEncoder:
        del max_length
        return self.layers(self.embedding_width, num_layers=self.num_layers, dropout=self.dropout)


class TransformerClassifier(TransformerFields, ClassifierModel):
    """Reads all of a text at once."""

    kind: Literal["transformer"]

    def encoder(self, max_length: int) -> TextEncoder:
        sizes = self.block_sizes(self.dropout)
        return TransformerTextEncoder(self.embedding_width, sizes, num_layers=self.num_layers, max_length=max_length)


class BagClassifier(ClassifierModel):
    """A classifier that reads words in no order."""

    kind: Literal["bag"]

    def encoder(self, max_length: int) -> TextEncoder:
        del max_length
        return BagEncoder(self.embedding_width)


AnyModel = RecurrentClassifier | TransformerClassifier | BagClassifier


class ClassifyTraining(base.TrainingSection):
    """The section that says how a classifier learns."""

    learning_rate: base.LearningRate = Field(default=2e-3, description="The peak, after the warm-up.")
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
    metric: Literal["auto", "accuracy", "micro_f1", "macro_f1", "loss"] = Field(
        default="auto",
        description="What the best model is best at. auto: accuracy, or micro_f1 where texts have several labels.",
    )

    @field_validator("class_weights", mode="before")
    @classmethod
    def _names(cls, given: object) -> object:
        """Keep a label that YAML reads as a number as a name."""
        return {str(name): weight for name, weight in given.items()} if isinstance(given, dict) else given


class ClassifyDecoding(Section):
    """The section that says which labels a trained model gives, where a text has several at once."""

    threshold: Share = Field(default=0.5, description="Every label with at least this probability is given.")


class ClassifyConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["classify"]
    data: ClassifyData
    tokenizer: ClassifyTokenizer = ClassifyTokenizer()
    model: Annotated[AnyModel, Field(discriminator="kind")] = RecurrentClassifier()
    training: ClassifyTraining = ClassifyTraining()
    decoding: ClassifyDecoding = ClassifyDecoding()

    @property
    def limits(self) -> ReadingLimits:
        """Return the limits of what is read of a text."""
        documents = None if self.model.sentences is None else self.data.max_sentences
        return ReadingLimits(self.data.context, self.data.max_length, documents)

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, given: object) -> object:
        """Take a recurrent model, if it doesn't say its kind."""
        return fill_kind(given, "model", "recurrent")

    @model_validator(mode="after")
    def _check(self) -> ClassifyConfig:
        sizes = {"max_length": self.model, "max_sentences": self.model.sentences}
        for name, section in sizes.items():
            for score in ("pooling_score", "score"):
                check_location(getattr(section, score, ""), f"data.{name}", getattr(self.data, name))
        if self.model.sentences is not None and self.data.context:
            raise ValueError(f"data.context: {self.data.context} given; documents (model.sentences) have none before")
        if (
            self.model.sentences is None
            and self.data.max_sentences != ClassifyData.model_fields["max_sentences"].default
        ):
            said = "given, but it is for documents (model.sentences)"
            raise ValueError(f"data.max_sentences: {self.data.max_sentences} {said}")
        training = self.training
        several = {"label_smoothing": 0.0, "consistency": 0.0}
        single = {
            "training.metric": training.metric == "micro_f1",
            "decoding.threshold": self.decoding.threshold != 0.5,
        }
        if self.data.separator is None and (wrong := [name for name, given in single.items() if given]):
            raise ValueError(f"{wrong[0]}: given, but it is for several labels at once (data.separator)")
        for name, default in several.items():
            if self.data.separator is not None and getattr(training, name) != default:
                raise ValueError(f"training.{name}: given, but it is for one label a text (no data.separator)")
        return self


class ClassifyOptions(RequestOptions):
    """A request's options, for a server."""

    attention: bool = Field(default=False, description="The weight of each word.")
    key_terms: int = Field(default=0, ge=0, le=100, description="How many of the words that weighed most.")
    threshold: float | None = Field(
        default=None, ge=0, le=1, description="Of several labels at once, those with at least this probability."
    )
