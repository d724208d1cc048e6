"""The sections of a write config, and what a request to a server may say."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from saccade.attention.scores import LOCATIONS
from saccade.config import base
from saccade.config.base import (
    FilesOrPart,
    Grow,
    HeldOutPart,
    Layers,
    NormalizerName,
    OldShare,
    OrAuto,
    Positive,
    RunSection,
    ScoreName,
    Section,
    Share,
    VocabularySize,
    fill_kind,
)
from saccade.config.fields import FileFields, TransformerFields, check_location, refuse_unused
from saccade.decoding import SamplingOptions
from saccade.layers.recurrent.lookback import Lookback, NgramStates, StateAttention
from saccade.layers.recurrent.lstmn import Lstmn
from saccade.layers.recurrent.scan import CellDropout
from saccade.models.recurrent_writer import PlainCells, RecurrentWriter, WriterDropouts
from saccade.models.transformer_writer import TransformerWriter
from saccade.tasks.base import MOST_BEAM, RequestOptions

Network = TransformerWriter | RecurrentWriter
Metric = Literal["perplexity", "word_perplexity", "nats_per_character", "bits_per_character"]
PARTS = {"states": 1, "key_value": 2, "key_value_predict": 3}  # of a state, for each kind of attention to the last ones
MOST_WRITTEN = 1 << 30
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class WriteFiles(FileFields):
    """Files of texts, UTF-8, plain or .gz, and what their documents are."""

    valid: FilesOrPart[str] = Field(
        default=HeldOutPart(share=0.1),
        description="What is scored in training; the best model on it is kept. A file, or the last documents of train: "
        "a share (0.1) or a number of them (500); of a lone document its last lines.",
    )
    documents: Literal["lines", "paragraphs", "files"] = Field(
        default="lines",
        description="What a document is: a line, what stands between blank lines, or a file. Characters keep the line "
        "breaks and spaces of paragraphs and files; words and pieces read them as a space.",
    )


class WriteData(WriteFiles):
    """The section that says where texts come from. Their documents are packed end to end."""

    old_share: OldShare = 0.0
    old: OrAuto[WriteFiles] = Field(
        default="auto", description="Where old texts come from. auto: what the run of from has learned from."
    )
    context: Positive = Field(
        default=256,
        description="Tokens of a row. A Transformer sees no further; an RNN's state reaches further, its gradient not.",
    )
    overlap: Share = Field(
        default=0.5,
        description="Of a Transformer's rows in validation and tests: the share that the row before has scored, "
        "so that no token is predicted from little. 0: rows follow each other, and each begins with nothing.",
    )


class WriteTokenizer(Section):
    """The section that says how texts become ids."""

    kind: Literal["unigram", "bpe", "words", "characters"] = Field(
        default="unigram",
        description="SentencePiece unigram or BPE with byte fallback, white-space words, or characters.",
    )
    vocabulary_size: VocabularySize = Field(
        default="auto",
        description="How many tokens there are, at most. auto: for pieces 500 and one for each 100 words, at "
        "most 8000; for words at most 8000; for characters all.",
    )
    grow: Grow = 0


class TransformerModel(TransformerFields):
    """A Transformer without an encoder."""

    kind: Literal["transformer"] = "transformer"
    dropout: Share = 0.1
    tied: bool = Field(default=True, description="Embeddings and output are one matrix.")

    def network(self, vocabulary: int, context: int) -> Network:
        sizes = self.block_sizes(self.dropout)
        return TransformerWriter(
            vocabulary=vocabulary, sizes=sizes, num_layers=self.num_layers, context=context, is_tied=self.tied
        )


class RecurrentModel(Section):
    """An RNN, which may attend to its own last states."""

    kind: Literal["recurrent"]
    cell: Literal["rnn", "gru", "lstm", "lstmn"] = Field(
        default="lstm", description="lstmn: an LSTM that attends to a tape of its states (Cheng 2016)."
    )
    width: Positive = Field(default=256, description="Of a state.")
    embedding_width: Positive = 256
    num_layers: Layers = 1
    dropout: Share = Field(default=0.3, description="Of embeddings, between layers, and of outputs (Zaremba 2014).")
    hidden_dropout: Share | None = Field(
        default=None, description="Between layers, and before the projection of a tied output; none given: as dropout."
    )
    vocabulary_dropout: Share = Field(
        default=0.0, description="Of the words: so many have an embedding of 0 for a step (Merity 2018)."
    )
    variational: bool = Field(
        default=False, description="Dropout takes the same columns at all steps of a row (Gal and Ghahramani 2016)."
    )
    weight_dropout: Share = Field(
        default=0.0, description="Of the weights from state to state, once for all steps of a row (Merity 2018)."
    )
    tied: bool = Field(
        default=False,
        description="Embeddings and output are one matrix. One that is narrower than a state gets a projection.",
    )
    attention: Literal["none", "states", "key_value", "key_value_predict", "ngram"] = Field(
        default="none",
        description="What the output reads of the last states (Daniluk 2017): states attends to all of each; key_value "
        "and key_value_predict to their first part, reading the second; ngram joins parts of them without attention.",
    )
    span: Positive = Field(default=10, description="The number of last states that are seen. ngram: of n - 1 steps.")
    score: ScoreName = Field(default="additive", description="How a step asks the last states.")
    normalizer: NormalizerName = "softmax"

    @model_validator(mode="after")
    def _check(self) -> RecurrentModel:
        parts = self._num_parts
        if self.width % parts:
            raise ValueError(f"width: {self.width} given; attention: {self.attention} cuts it into {parts} equal parts")
        if self.tied and self.embedding_width > self.width // parts:
            wanted = f"tied to the output it must be at most {self.width // parts}"
            raise ValueError(f"embedding_width: {self.embedding_width} given; {wanted}")
        if self.cell == "lstmn" and self.attention != "none":
            raise ValueError(f"attention: {self.attention!r} given; cell: lstmn attends by itself")
        if self.cell == "lstmn" and (self.variational or self.weight_dropout):
            name = "variational" if self.variational else "weight_dropout"
            raise ValueError(f"{name}: {getattr(self, name)} given; cell: lstmn has dropout alone")
        is_projected = self.tied and self.embedding_width < self.width // parts
        if self.hidden_dropout is not None and self.num_layers == 1 and not is_projected:
            given = f"hidden_dropout: {self.hidden_dropout} given"
            raise ValueError(f"{given}; it has no effect with num_layers: 1 and no projection")
        attends = self.cell == "lstmn" or self.attention in PARTS
        used = {"score": attends, "normalizer": attends, "span": attends or self.attention == "ngram"}
        reason = f"with attention: {self.attention}"
        refuse_unused(self, {name: None if has_effect else reason for name, has_effect in used.items()})
        check_location(self.score if attends else "", "span", self.span, LOCATIONS - 1)
        return self

    @property
    def _num_parts(self) -> int:
        """The parts of a state: for n-grams one for each step."""
        return self.span if self.attention == "ngram" else PARTS.get(self.attention, 1)

    def network(self, vocabulary: int, context: int) -> Network:
        del context
        return RecurrentWriter(
            vocabulary=vocabulary,
            embedding_width=self.embedding_width,
            cells=self._cells(),
            lookback=self._lookback(),
            is_tied=self.tied,
            dropouts=WriterDropouts(self.dropout, self._between, self.vocabulary_dropout, self.variational),
        )

    @property
    def _between(self) -> float:
        return self.dropout if self.hidden_dropout is None else self.hidden_dropout

    def _cells(self) -> PlainCells | Lstmn:
        widths, common = (
            (self.embedding_width, self.width),
            dict[str, Any](num_layers=self.num_layers, dropout=self._between),
        )
        if self.cell == "lstmn":
            return Lstmn(*widths, span=self.span, score=self.score, normalizer=self.normalizer, **common)
        dropping = CellDropout(self.variational, self.weight_dropout)
        return PlainCells(*widths, cell=self.cell, dropping=dropping, **common)

    def _lookback(self) -> Lookback | None:
        if self.attention == "ngram":
            return NgramStates(self.width, order=self.span + 1)
        if self.attention == "none":
            return None
        options: dict[str, Any] = {"score": self.score, "normalizer": self.normalizer}
        return StateAttention(self.width, num_parts=PARTS[self.attention], span=self.span, **options)


AnyModel = TransformerModel | RecurrentModel


class WriteTraining(base.TrainingSection):
    """The section that says how a language model learns."""

    batch_size: Positive = Field(
        default=32, description="Rows of data.context tokens in a batch; of an RNN, readers side by side in the text."
    )
    label_smoothing: Share = 0.0
    size_penalty: Amount = Field(
        default=0.0,
        description="Of an RNN: of the mean square of what its output reads (AR; Merity 2018, section 4.6).",
    )
    change_penalty: Amount = Field(
        default=0.0, description="Of an RNN: of the mean square of its change from step to step (TAR; the same)."
    )
    metric: Literal["auto", Metric] = Field(
        default="auto",
        description="What the best model is best at, and what is shown first. auto: perplexity of words, "
        "word_perplexity of pieces, nats_per_character of characters.",
    )


class WriteDecoding(Section):
    """Settings of a trained model's writing, unless a call says otherwise."""

    max_length: Positive = Field(default=200, description="The most tokens that are written, </s> included.")
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=1.0, description="Of samples: below 1 sharpens, above 1 flattens."
    )
    top_k: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Samples are of so many likeliest tokens (0: all)."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="Samples are of the fewest tokens with this probability."
    )
    max_rounds: Annotated[int, Field(ge=0)] = Field(
        default=8, description="A text that goes round the same tokens more often is cut there (0: never)."
    )
    writes_unknown: bool = Field(default=False, description="<unk> may be written.")

    def options(self) -> SamplingOptions:
        """Return the options of a call that says nothing; the beginning's length sets no limit."""
        fields = self.model_dump()
        return SamplingOptions(**fields, max_length_factor=1.0, max_length_extra=MOST_WRITTEN, length_penalty=0.0)


class WriteConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["write"]
    data: WriteData
    tokenizer: WriteTokenizer = WriteTokenizer()
    model: Annotated[AnyModel, Field(discriminator="kind")] = TransformerModel()
    training: WriteTraining = WriteTraining()
    decoding: WriteDecoding = WriteDecoding()

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, given: object) -> object:
        """Take a Transformer, if the model doesn't say its kind."""
        return fill_kind(given, "model", "transformer")

    @model_validator(mode="after")
    def _check(self) -> WriteConfig:
        if self.model.kind == "transformer":
            check_location(self.model.score, "data.context", self.data.context)
        if self.model.kind == "recurrent" and "overlap" in self.data.model_fields_set and self.data.overlap != 0.5:
            raise ValueError(f"data.overlap: {self.data.overlap} given; an RNN reads a text in one go")
        for name in ("size_penalty", "change_penalty"):
            if self.model.kind == "transformer" and (value := getattr(self.training, name)):
                raise ValueError(f"training.{name}: {value} given; it has no effect with model.kind: transformer")
        return self

    @property
    def metric(self) -> Metric:
        """Return the metric by which the best model is chosen."""
        if self.training.metric != "auto":
            return self.training.metric
        kinds: dict[str, Metric] = {"words": "perplexity", "characters": "nats_per_character"}
        return kinds.get(self.tokenizer.kind, "word_perplexity")


class WriteOptions(RequestOptions):
    """A request's options, for a server."""

    sample: bool | None = Field(default=None, description="Draw the text at random: true, unless there is a beam.")
    temperature: float | None = Field(default=None, gt=0, le=100, description="Of samples; by default the run's.")
    top_k: int | None = Field(default=None, ge=0, description="Of samples: the likeliest tokens (0: all).")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Of samples: the share of probability.")
    seed: int | None = Field(default=None, ge=0, lt=2**31, description="Of samples.")
    beam: int | None = Field(default=None, ge=1, le=MOST_BEAM, description="Without sampling: hypotheses; 1 is greedy.")
    max_length: int | None = Field(default=None, ge=1, le=2048, description="The most tokens to write.")
