"""One tag a token: words and their spelling, read in both directions, beside the same word's other places."""

from __future__ import annotations

from typing import NamedTuple, cast, final

import torch
from torch import Tensor, nn

from saccade.attention import MultiHeadAttention, masks
from saccade.attention.dropout import dropout
from saccade.data.tokenizer import UNKNOWN
from saccade.layers.characters import Characters
from saccade.layers.crf import LinearChain
from saccade.layers.recurrent import RecurrentEncoder


class Tokens(NamedTuple):
    """Sentences as a tagger reads them. Every spelling of the batch is there once; places count through [B, T] flat.

    `place_NS` has a row for each word that a document has more than once: where it stands.
    """

    word_BT: Tensor
    length_B: Tensor
    spelling_BT: Tensor  # which of the N spellings
    character_NC: Tensor
    character_length_N: Tensor
    shape_N: Tensor
    place_NS: Tensor
    place_length_N: Tensor


@final
class WordFeatures(nn.Module):
    """A token's vector: its lower-cased word, its characters and its shape (Xxx, XXX, 00) side by side.

    While training, a word seen c times is read as <unk> with probability a / (a + c) (Kiperwasser & Goldberg 2016,
    section 4.3), so that <unk> is learned.
    """

    def __init__(
        self,
        *,
        num_words: int,
        word_width: int,
        num_shapes: int,
        shape_width: int,
        characters: Characters | None,
        character_width: int,
        dropout: float,
        unknown_share: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.word, self.characters, self.dropout = nn.Embedding(num_words, word_width), characters, dropout
        self.shape = nn.Embedding(num_shapes, shape_width) if shape_width else None
        self.width = word_width + shape_width + character_width
        for table in (self.word, self.shape):
            if table is not None:
                nn.init.uniform_(table.weight, -((3 / table.embedding_dim) ** 0.5), (3 / table.embedding_dim) ** 0.5)
        share_V = torch.zeros(num_words) if unknown_share is None else unknown_share.float()
        self.register_buffer("unknown_share_V", share_V, persistent=False)

    def forward(self, tokens: Tokens) -> Tensor:
        """[B, T, D]."""
        word_BT = tokens.word_BT
        if self.training:
            share_BT = self.get_buffer("unknown_share_V")[word_BT]
            word_BT = word_BT.masked_fill(torch.rand_like(share_BT) < share_BT, UNKNOWN)
        spelled = []
        if self.characters is not None:
            spelled.append(self.characters(tokens.character_NC, tokens.character_length_N))
        if self.shape is not None:
            spelled.append(self.shape(tokens.shape_N))
        parts = [self.word(word_BT)]
        if spelled:
            parts.append(torch.cat(spelled, -1)[tokens.spelling_BT])
        return dropout(torch.cat(parts, -1), self.dropout, self.training)


@final
class OtherPlaces(nn.Module):
    """Attention of a token to the other places of its word in the document; nothing where there is none.

    What one sentence leaves open (CHICAGO in a headline), another may tell (Chinchor 1998; Krishnan & Manning 2006).
    """

    def __init__(self, width: int, *, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.dropout = MultiHeadAttention(width, num_heads, bias=False), dropout

    def forward(self, x_BTD: Tensor, place_NS: Tensor, place_length_N: Tensor) -> Tensor:
        """[B, T, D], zeros for a word that stands alone."""
        flat_D = x_BTD.flatten(0, 1)
        seen = torch.zeros_like(flat_D)
        if len(place_NS):
            mask = masks.padding(place_length_N) & masks.where(lambda t, s: t != s)
            found_NSD = cast(Tensor, self.attention(flat_D[place_NS], mask=mask))
            real_NS = torch.arange(place_NS.shape[1], device=place_NS.device) < place_length_N[:, None]
            seen = seen.index_put((place_NS[real_NS],), found_NSD[real_NS].to(seen.dtype))
        return dropout(seen.view_as(x_BTD), self.dropout, self.training)


@final
class Tagger(nn.Module):
    """Word features, an encoder, other places if asked for and an encoder behind them, and a chain of tags."""

    def __init__(
        self,
        *,
        features: WordFeatures,
        encoder: nn.Module,
        width: int,
        chain: LinearChain,
        dropout: float,
        places: OtherPlaces | None = None,
        second: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.features, self.encoder, self.places, self.second, self.chain = features, encoder, places, second, chain
        self.dropout = dropout
        self.output = nn.Linear(width, chain.num_tags)

    def forward(self, tokens: Tokens) -> Tensor:
        """Emissions, [B, T, V]."""
        x_BTD, _ = self.encoder(self.features(tokens), tokens.length_B)
        x_BTD = dropout(x_BTD, self.dropout, self.training)
        if self.places is not None and self.second is not None:
            seen_BTD = self.places(x_BTD, tokens.place_NS, tokens.place_length_N)
            x_BTD, _ = self.second(torch.cat([x_BTD, seen_BTD], -1), tokens.length_B)
            x_BTD = dropout(x_BTD, self.dropout, self.training)
        return self.output(x_BTD)
