"""Tagging: word features, an encoder, attention to other places of the same word, and a chain of tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast, final

import torch
from torch import Tensor, nn

from saccade.attention import MultiHeadAttention, masks
from saccade.data.tags.lexicon import TaggerInput
from saccade.data.text.tokenizer import UNKNOWN
from saccade.layers.characters import Characters
from saccade.layers.crf import LinearChain
from saccade.models.text_encoder import TextEncoder
from saccade.ops.dropout import dropout


class FeatureSizes(NamedTuple):
    """The widths of a token's features; a width of 0 leaves a feature out."""

    word: int = 100
    character: int = 50
    shape: int = 10
    features: int = 0  # of all further columns together

    @property
    def total(self) -> int:
        return sum(self)


@final
class WordFeatures(nn.Module):
    """A token's vector: its lower-cased word, its characters, its shape (Xxx, XX, 00) and further columns side by side.

    While training, a word is read as <unk> with its share in `unknown_share_V`: a / (a + c) for one seen c times
    (Kiperwasser & Goldberg 2016, section 4.3), so that <unk> is learned.
    """

    def __init__(
        self,
        sizes: FeatureSizes,
        *,
        num_words: int,
        num_characters: int,
        num_shapes: int,
        num_features: Sequence[int] = (),
        reader: str = "cnn",
        dropout: float = 0.0,
        unknown_share: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.width, self.dropout = sizes.total, dropout
        self.word = _embedding(num_words, sizes.word)
        self.characters = Characters(num_characters, sizes.character, reader=reader) if sizes.character else None
        self.shape = _embedding(num_shapes, sizes.shape) if sizes.shape else None
        self.features = nn.ModuleList(_embedding(count, sizes.features // len(num_features)) for count in num_features)
        share_V = torch.zeros(num_words) if unknown_share is None else unknown_share
        self.register_buffer("unknown_share_V", share_V, persistent=False)

    def forward(self, tokens: TaggerInput) -> Tensor:
        """Return a vector for each token, [B, T, D]."""
        parts = [self.word(self._hide_words(tokens.word_BT))]
        if self.characters is not None:
            spelled_ND = self.characters(tokens.character_NC, tokens.character_length_N)
            parts.append(spelled_ND[tokens.spelling_BT])
        if self.shape is not None:
            parts.append(self.shape(tokens.shape_N[tokens.spelling_BT]))
        parts += [table(tokens.feature_BTF[..., column]) for column, table in enumerate(self.features)]
        return dropout(torch.cat(parts, -1), self.dropout, self.training)

    def _hide_words(self, word_BT: Tensor) -> Tensor:
        """Replace random words by <unk> in training."""
        if not self.training:
            return word_BT
        share_BT = self.get_buffer("unknown_share_V")[word_BT]
        return word_BT.masked_fill(torch.rand_like(share_BT) < share_BT, UNKNOWN)


@final
class OtherPlaces(nn.Module):
    """Attention of a token to the other places of its word in the document; zeros where there is none.

    Another sentence may tell what one leaves open (CHICAGO in a headline): non-local features (Ratinov & Roth 2009,
    section 6) as attention.
    """

    def __init__(self, width: int, *, num_heads: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, num_heads, bias=False)

    def forward(self, x_BTD: Tensor, place_NS: Tensor, length_N: Tensor) -> Tensor:
        """Return [B, T, D]; a row of `place_NS` are the places of one word, counted through [B, T]."""
        x_ND = x_BTD.flatten(0, 1)
        if not len(place_NS):
            return torch.zeros_like(x_BTD)
        mask = masks.padding(length_N) & masks.where(lambda t, s: t != s)
        found_NSD = cast(Tensor, self.attention(x_ND[place_NS], mask=mask))
        real_NS = torch.arange(place_NS.shape[1], device=place_NS.device) < length_N[:, None]
        other_ND = torch.zeros_like(x_ND).index_put((place_NS[real_NS],), found_NSD[real_NS].to(x_ND.dtype))
        return other_ND.view_as(x_BTD)


@final
class TagNetwork(nn.Module):
    """Word features, an encoder and a chain of tags; for whole documents also other places.

    A second encoder, behind the first, then reads the vectors from the other places as well.
    """

    def __init__(
        self,
        *,
        features: WordFeatures,
        encoder: TextEncoder,
        chain: LinearChain,
        dropout: float = 0.0,
        places: OtherPlaces | None = None,
        second: TextEncoder | None = None,
    ) -> None:
        super().__init__()
        assert (places is None) == (second is None)
        self.features, self.encoder, self.chain, self.dropout = features, encoder, chain, dropout
        self.places, self.second = places, second
        self.output = nn.Linear((encoder if second is None else second).width, chain.num_tags)

    def forward(self, tokens: TaggerInput) -> Tensor:
        """Return a score for each tag of each token, [B, T, V]."""
        x_BTD = self.encoder(self.features(tokens), tokens.length_B).memory_BSD
        x_BTD = dropout(x_BTD, self.dropout, self.training)
        if self.places is not None and self.second is not None:
            other_BTD = self.places(x_BTD, tokens.place_NS, tokens.place_length_N)
            other_BTD = dropout(other_BTD, self.dropout, self.training)
            x_BTD = self.second(torch.cat([x_BTD, other_BTD], -1), tokens.length_B).memory_BSD
            x_BTD = dropout(x_BTD, self.dropout, self.training)
        return self.output(x_BTD)


def _embedding(count: int, width: int) -> nn.Embedding:
    """Draw an embedding uniformly in ± sqrt(3 / D), so that a vector's length is 1 (Ma & Hovy 2016, section 3.1)."""
    table = nn.Embedding(count, width)
    nn.init.uniform_(table.weight, -((3 / width) ** 0.5), (3 / width) ** 0.5)
    return table
