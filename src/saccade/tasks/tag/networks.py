"""The networks of taggers, built from their sections."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from saccade.data.tags.columns import TaggedSentence
from saccade.data.tags.lexicon import Lexicon
from saccade.data.tags.spans import allowed_pairs
from saccade.data.text.tokenizer import SPECIAL
from saccade.layers.crf import LinearChain
from saccade.models.tagger import FeatureSizes, OtherPlaces, TagNetwork, WordFeatures
from saccade.tasks.tag.config import RecurrentTagger, TransformerTagger


def network(section: RecurrentTagger | TransformerTagger, lexicon: Lexicon) -> TagNetwork:
    """Build a tagger from its section."""
    has_characters = section.characters != "none"
    sizes = FeatureSizes(
        section.word_width,
        section.character_width if has_characters else 0,
        section.shape_width,
        section.feature_width * len(lexicon.features),
    )
    features = WordFeatures(
        sizes,
        num_words=lexicon.words.size,
        num_characters=lexicon.characters.size,
        num_shapes=lexicon.shapes.size,
        num_features=[column.size for column in lexicon.features],
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
    """Return a / (a + c) for a word that is seen c times, [V]; 0 for what is no word."""
    count_V = torch.from_numpy(lexicon.counts(sentences)).float()
    share_V = word_dropout / (word_dropout + count_V).clamp_min(1e-9)
    share_V[: len(SPECIAL)] = 0
    return share_V
