"""Character encoders: a word's vector from its spelling."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from saccade.layers.recurrent.layers import RecurrentEncoder
from saccade.ops.dropout import dropout

READERS = ("cnn", "lstm")


@final
class Characters(nn.Module):
    """A word's vector from its characters [N, C], 0 behind its length.

    cnn: max_c f(W x_c-1..c+1) (Ma & Hovy 2016, section 2.1). lstm: the last states of both directions side by side
    (Lample 2016, section 4.1).
    """

    def __init__(
        self, num_characters: int, width: int, *, reader: str = "cnn", embedding_width: int = 30, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if reader not in READERS:
            raise ValueError(f"characters: {reader!r} given; allowed: {', '.join(READERS)}")
        self.dropout = dropout
        self.embedding = nn.Embedding(num_characters, embedding_width)
        nn.init.normal_(self.embedding.weight, std=embedding_width**-0.5)
        self.reader: nn.Conv1d | RecurrentEncoder
        if reader == "cnn":
            self.reader = nn.Conv1d(embedding_width, width, 3, padding=1)
        else:
            self.reader = RecurrentEncoder(embedding_width, width, cell="lstm", num_layers=1, dropout=0.0)

    def forward(self, character_NC: Tensor, length_N: Tensor) -> Tensor:
        x_NCD = dropout(self.embedding(character_NC), self.dropout, self.training)
        if isinstance(self.reader, RecurrentEncoder):
            return self.reader(x_NCD, length_N)[1][0][-1]
        real_NC1 = (torch.arange(character_NC.shape[1], device=length_N.device) < length_N[:, None])[..., None]
        found_NCD = self.reader((x_NCD * real_NC1).mT).mT.relu()
        return (found_NCD * real_NC1).amax(1)  # relu: what is not real can't be the greatest
