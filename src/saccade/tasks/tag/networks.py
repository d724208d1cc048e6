"""The networks of taggers: their sections, and from these to modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator

from saccade.config.base import Positive, Section, Share
from saccade.config.fields import RecurrentFields, TransformerFields
from saccade.data.tags.columns import TaggedSentence
from saccade.data.tags.lexicon import Lexicon
from saccade.data.tags.spans import allowed_pairs
from saccade.data.text.tokenizer import SPECIAL
from saccade.layers.crf import LinearChain
from saccade.models.tagger import FeatureSizes, OtherPlaces, TagNetwork, WordFeatures
from saccade.models.text_encoder import RecurrentTextEncoder, TransformerTextEncoder

Width = Annotated[int, Field(ge=0)]


class TaggerModel(Section):
    """What every tagger has."""

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
    spelling: Literal["bio", "bioes"] = Field(default="bioes", description="How the model spells spans inside.")
    reads_documents: bool = Field(
        default=False,
        description="A word attends to its other places in the document (-DOCSTART-), and one more layer reads along.",
    )

    @model_validator(mode="after")
    def _refuse_what_has_no_effect(self) -> TaggerModel:
        fields = type(self).model_fields
        if self.characters == "none" and self.character_width != fields["character_width"].default:
            raise ValueError(f"character_width: {self.character_width} given; it has no effect with characters: none")
        if self.characters == "lstm" and self.character_width % 2:
            raise ValueError(f"character_width: {self.character_width} given; two directions need an even one")
        if self.vectors is None and self.max_vectors != fields["max_vectors"].default:
            raise ValueError(f"max_vectors: {self.max_vectors} given; it has no effect without vectors")
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
    num_layers: Positive = 3
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


def network(section: RecurrentTagger | TransformerTagger, lexicon: Lexicon) -> TagNetwork:
    """From its section."""
    has_characters = section.characters != "none"
    sizes = FeatureSizes(section.word_width, section.character_width if has_characters else 0, section.shape_width)
    features = WordFeatures(
        sizes,
        num_words=lexicon.words.size,
        num_characters=lexicon.characters.size,
        num_shapes=lexicon.shapes.size,
        reader=section.characters if has_characters else "cnn",
        dropout=section.dropout,
    )
    has_table = section.constrained and lexicon.spelling is not None
    allowed = allowed_pairs(lexicon.tags, str(lexicon.spelling)) if has_table else None
    return TagNetwork(
        features=features,
        encoder=section.encoder(features.width, section.num_layers, "encoder"),
        chain=LinearChain(len(lexicon.tags), allowed=allowed, is_learned=section.crf),
        dropout=section.dropout,
        places=OtherPlaces(section.width, num_heads=section.num_heads) if section.reads_documents else None,
        second=section.encoder(2 * section.width, 1) if section.reads_documents else None,
    )


def unknown_share(word_dropout: float, lexicon: Lexicon, sentences: Iterable[TaggedSentence]) -> torch.Tensor:
    """a / (a + c) for a word that is seen c times, [V]; 0 for what is no word."""
    count_V = torch.from_numpy(lexicon.counts(sentences)).float()
    share_V = word_dropout / (word_dropout + count_V).clamp_min(1e-9)
    share_V[: len(SPECIAL)] = 0
    return share_V
