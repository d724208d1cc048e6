"""The sections of a tag config, and what a request to a server may say."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config import base
from saccade.config.base import (
    FilesOrPart,
    Layers,
    Positive,
    RunSection,
    Section,
    Share,
    fill_kind,
)
from saccade.config.fields import RecurrentFields, TransformerFields, refuse_unused
from saccade.data.tags.columns import Column
from saccade.models.text_encoder import RecurrentTextEncoder, TransformerTextEncoder
from saccade.tasks.base import RequestOptions

Width = Annotated[int, Field(ge=0)]


class PairedFiles(Section):
    """Two files with a sentence a line: words with spaces between them, and as many tags."""

    words: str
    tags: str


class TagData(Section):
    """The section that names files of tagged sentences: CoNLL columns (a token a line), JSONL, or words and tags."""

    train: str | PairedFiles = Field(description="What it learns from: a file, folder or glob; or words and tags.")
    valid: FilesOrPart[str | PairedFiles] = Field(
        description="What validation tags and scores; the best model on it is kept. Files, or a part of train, chosen "
        "by a hash of the words (of a document): a share (0.05) or a number of sentences (500)."
    )
    test: str | PairedFiles | None = Field(default=None, description="What is scored at the end; never trained on.")
    word_column: Column = Field(
        default=0, description="Which column holds the word: from 0 (-1 is the last), or its name in the first line."
    )
    tag_column: Column = Field(default=-1, description="Which column holds the tag. In JSONL names are keys.")
    feature_columns: list[Column] = Field(
        default=[], description="Further columns that are read beside the word; each value has a vector."
    )
    scheme: Literal["auto", "bio", "iob1", "bioes", "none"] = Field(
        default="auto", description="How the files' tags spell spans; none: they don't (parts of speech)."
    )

    @model_validator(mode="after")
    def _check(self) -> TagData:
        given = [self.word_column, self.tag_column, *self.feature_columns]
        if len(set(given)) < len(given):
            raise ValueError(f"feature_columns: {self.feature_columns} given; a column is named twice")
        if given != [0, -1] and any(isinstance(files, PairedFiles) for files in self.sets.values()):
            raise ValueError("word_column, tag_column, feature_columns: words and tags in files apart have no columns")
        return self

    @property
    def sets(self) -> dict[str, str | PairedFiles]:
        """The files under the names that messages use."""
        given = {"data.train": self.train, "data.valid": self.valid, "data.test": self.test}
        return {name: files for name, files in given.items() if isinstance(files, str | PairedFiles)}


class TaggerModel(Section):
    """The fields that all taggers share."""

    word_width: Positive = Field(default=100, description="Of a lower-cased word's vector.")
    min_count: Positive = Field(default=2, description="A word seen less often in the training text is <unk>.")
    word_dropout: Annotated[float, Field(ge=0)] = Field(
        default=0.25, description="a: in training, a word seen c times is read as <unk> with probability a / (a + c)."
    )
    vectors: str | None = Field(default=None, description="Word vectors to begin with: GloVe, word2vec, fastText text.")
    max_vectors: Positive = Field(default=400_000, description="So many are read from the beginning of their file.")
    characters: Literal["cnn", "lstm", "none"] = Field(default="cnn", description="What reads a word's characters.")
    character_width: Positive = Field(default=50, description="Of the vector it makes of them.")
    shape_width: Width = Field(default=10, description="Of a word's shape's vector (Xxx, XX, 00-00); 0: none.")
    crf: bool = Field(default=True, description="Neighbouring tags are learned together, as a chain.")
    constrained: bool = Field(default=True, description="Only tags that spell spans are possible.")
    feature_width: Positive = Field(default=20, description="Of a further column's vector (data.feature_columns).")
    spelling: Literal["bio", "bioes"] = Field(default="bioes", description="How the model spells spans inside.")
    reads_documents: bool = Field(
        default=False,
        description="A word attends to its other places in the document (-DOCSTART-), and one more layer reads along.",
    )

    @model_validator(mode="after")
    def _refuse_what_has_no_effect(self) -> TaggerModel:
        reasons = {
            "character_width": "with characters: none" if self.characters == "none" else None,
            "max_vectors": "without vectors" if self.vectors is None else None,
        }
        refuse_unused(self, reasons)
        if self.characters == "lstm" and self.character_width % 2:
            raise ValueError(f"character_width: {self.character_width} given; two directions need an even width")
        return self


class RecurrentTagger(RecurrentFields, TaggerModel):
    """Reads a sentence step by step."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    width: Positive = Field(default=400, description="Of both directions together.")
    num_heads: Positive = Field(default=4, description="Of the attention to other places.")
    dropout: Share = 0.5

    def encoder(self, input_width: int, num_layers: int, kind: str | None = None) -> RecurrentTextEncoder:
        """Build an encoder of so many layers; it has no attention to record as a `kind`."""
        del kind
        return self.layers(input_width, num_layers=num_layers, dropout=self.dropout)


class TransformerTagger(TransformerFields, TaggerModel):
    """Reads all of a sentence at once."""

    kind: Literal["transformer"]
    width: Positive = 256
    hidden_width: Positive = 512
    num_layers: Layers = 3
    positions: Literal["sinusoidal", "learned", "rotary", "relative"] = "relative"
    dropout: Share = 0.2

    @model_validator(mode="after")
    def _refuse_what_ends(self) -> TransformerTagger:
        for name, value, last in (("positions", self.positions, "learned"), ("score", self.score, "location")):
            if value == last:
                raise ValueError(f"{name}: {value!r} given; it ends at some position, and sentences may be longer")
        return self

    def encoder(self, input_width: int, num_layers: int, kind: str | None = None) -> TransformerTextEncoder:
        """Build an encoder of so many layers, whose attention is recorded as a `kind`."""
        return TransformerTextEncoder(input_width, self.block_sizes(self.dropout), num_layers=num_layers, kind=kind)


class TagTraining(base.TrainingSection):
    """The section that says how a tagger learns."""

    learning_rate: base.LearningRate = Field(default=3e-3, description="The peak, after the warm-up.")
    batch_size: Positive = Field(default=32, description="Sentences a batch; documents, if the model reads them.")
    metric: Literal["auto", "f1", "accuracy", "loss"] = Field(
        default="auto",
        description="What the best model is best at; auto: F1 of spans, or accuracy where there are none.",
    )


class TagConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["tag"]
    data: TagData
    model: Annotated[RecurrentTagger | TransformerTagger, Field(discriminator="kind")] = RecurrentTagger()
    training: TagTraining = TagTraining()

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, given: object) -> object:
        """Take a recurrent model, if it doesn't say its kind."""
        return fill_kind(given, "model", "recurrent")

    @model_validator(mode="after")
    def _check(self) -> TagConfig:
        section = self.model
        if section.reads_documents and section.width % section.num_heads:
            raise ValueError(f"model.num_heads: {section.num_heads} given; it must divide the width, {section.width}")
        if self.data.scheme == "none" and self.training.metric == "f1":
            raise ValueError("training.metric: 'f1' given; without spans (data.scheme: none) there is none")
        return self


class TagOptions(RequestOptions):
    """A request's options, for a server; words stand between white space."""

    probabilities: bool = Field(default=False, description="The probabilities of every tag.")
