"""The networks of classifiers, built from their sections."""

from __future__ import annotations

from collections.abc import Callable

import torch

from saccade.data.labels.documents import ReadingLimits
from saccade.layers.dialogue import AttentionContext, Context, RecurrentContext
from saccade.layers.pooling import AttentionPooling, LastPooling, MaxPooling, MeanPooling, Pooling, StructuredPooling
from saccade.models.classifier import ClassifierDropouts, DocumentReader, TextClassifier
from saccade.tasks.classify.config import (
    AnyModel,
    ClassifierModel,
    PoolingFields,
)


def network(section: AnyModel, *, vocabulary: int, num_labels: int, limits: ReadingLimits, seed: int) -> TextClassifier:
    """Make a network from its section, initialised by the run's seed."""
    torch.manual_seed(seed)
    encoder = section.encoder(limits.max_length)
    pools = _pooling(section, encoder.width)
    return TextClassifier(
        vocabulary=vocabulary,
        embedding_width=section.embedding_width,
        num_labels=num_labels,
        encoder=encoder,
        pooling=pools,
        context=_context(section, pools.width, limits.context) if limits.context else None,
        document=_document(section, pools.width, limits.max_sentences) if limits.max_sentences else None,
        dropouts=ClassifierDropouts(section.word_dropout, section.embedding_dropout, section.dropout),
    )


def _pooling(section: PoolingFields, width: int) -> Pooling:
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


def _document(section: ClassifierModel, width: int, most: int) -> DocumentReader:
    assert section.sentences is not None
    encoder = section.sentences.encoder(width, section.dropout, most)
    return DocumentReader(encoder, _pooling(section.sentences, encoder.width))
