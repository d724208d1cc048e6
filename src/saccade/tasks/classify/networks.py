"""The networks of classifiers: their sections, and from these to modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator

from saccade.config.base import NormalizerName, Positive, ScoreName, Section, Share
from saccade.config.fields import RecurrentFields, TransformerFields
from saccade.layers.dialogue import AttentionContext, Context, RecurrentContext
from saccade.layers.pooling import AttentionPooling, LastPooling, MaxPooling, MeanPooling, Pooling, StructuredPooling
from saccade.models.classifier import ClassifierDropouts, TextClassifier
from saccade.models.text_encoder import BagEncoder, TextEncoder, TransformerTextEncoder


class ClassifierModel(Section):
    """What every classifier has: how words begin, how a text becomes one vector, and how it sees those before it."""

    embedding_width: Positive = Field(default=128, description="Of a token's vector.")
    pooling: Literal["mean", "last", "max", "attention", "structured"] = Field(
        default="attention", description="How the vectors of a text's tokens become one."
    )
    pooling_score: ScoreName = Field(default="additive", description="How attention pooling's query asks a token.")
    pooling_normalizer: NormalizerName = "softmax"
    num_hops: Positive = Field(default=4, description="Of structured self-attention: how many weighted sums.")
    hop_width: Positive = Field(default=64, description="Of its hidden layer.")
    hop_penalty: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.1, description="How much the loss minds that hops look at the same tokens (Lin 2017: 1)."
    )
    context: Literal["rnn", "gru", "lstm", "attention"] = Field(
        default="gru", description="What reads the vectors of a dialogue's last texts (data.context)."
    )
    context_width: Positive = Field(default=256, description="Of a recurrent context.")
    context_score: ScoreName = Field(default="additive", description="How a text asks those before it.")
    word_dropout: Share = Field(default=0.0, description="The share of tokens that are read as <unk> in training.")
    embedding_dropout: Share = 0.0
    dropout: Share = Field(default=0.3, description="Of a text's vector, and between layers.")

    @model_validator(mode="after")
    def _refuse_what_has_no_effect(self) -> ClassifierModel:
        only = {
            "pooling_score": ("pooling", "attention"),
            "pooling_normalizer": ("pooling", "attention"),
            "num_hops": ("pooling", "structured"),
            "hop_width": ("pooling", "structured"),
            "hop_penalty": ("pooling", "structured"),
            "context_score": ("context", "attention"),
        }
        for name, (other, needed) in only.items():
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default and getattr(self, other) != needed:
                raise ValueError(f"{name}: {value!r} given; it has no effect with {other}: {getattr(self, other)}")
        return self


class RecurrentClassifier(RecurrentFields, ClassifierModel):
    """Reads a text step by step."""

    kind: Literal["recurrent"] = "recurrent"

    def encoder(self, max_length: int) -> TextEncoder:
        """As a module."""
        del max_length
        return self.layers(self.embedding_width, num_layers=self.num_layers, dropout=self.dropout)


class TransformerClassifier(TransformerFields, ClassifierModel):
    """Reads all of a text at once."""

    kind: Literal["transformer"]

    def encoder(self, max_length: int) -> TextEncoder:
        """As a module."""
        sizes = self.block_sizes(self.dropout)
        return TransformerTextEncoder(self.embedding_width, sizes, num_layers=self.num_layers, max_length=max_length)


class BagClassifier(ClassifierModel):
    """Reads words in no order."""

    kind: Literal["bag"]

    def encoder(self, max_length: int) -> TextEncoder:
        """As a module."""
        del max_length
        return BagEncoder(self.embedding_width)


AnyModel = RecurrentClassifier | TransformerClassifier | BagClassifier


def network(
    section: AnyModel, *, vocabulary: int, num_labels: int, num_before: int, max_length: int, seed: int
) -> TextClassifier:
    """From its section, initialised by the run's seed; `num_before` texts are seen before each one."""
    torch.manual_seed(seed)
    encoder = section.encoder(max_length)
    pools = _pooling(section, encoder.width)
    return TextClassifier(
        vocabulary=vocabulary,
        embedding_width=section.embedding_width,
        num_labels=num_labels,
        encoder=encoder,
        pooling=pools,
        context=_context(section, pools.width, num_before) if num_before else None,
        dropouts=ClassifierDropouts(section.word_dropout, section.embedding_dropout, section.dropout),
    )


def _pooling(section: ClassifierModel, width: int) -> Pooling:
    if section.pooling == "attention":
        return AttentionPooling(width, score=section.pooling_score, normalizer=section.pooling_normalizer)
    if section.pooling == "structured":
        return StructuredPooling(width, num_hops=section.num_hops, hidden_width=section.hop_width)
    plain: dict[str, Callable[[int], Pooling]] = {"mean": MeanPooling, "last": LastPooling, "max": MaxPooling}
    return plain[section.pooling](width)


def _context(section: ClassifierModel, width: int, num_before: int) -> Context:
    if section.context == "attention":
        return AttentionContext(width, longest=num_before + 1, score=section.context_score)
    return RecurrentContext(width, section.context_width, cell=section.context)
