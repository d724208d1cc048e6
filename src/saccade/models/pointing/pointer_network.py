"""Pointer networks (Vinyals 2015): what is written are places of the source, and attention is their distribution.

p(place s | places before, source) = a_ts. The ids that decoding knows stand for places: s is FIRST + s, and the place
behind the last one, where the pointer goes when it is done, is </s>.
"""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.attention import SCORES, attend, masks
from saccade.attention.masks import Mask
from saccade.attention.positions import Positions
from saccade.attention.scores import Score
from saccade.data.text.tokenizer import END, SPECIAL
from saccade.layers.recurrent.layers import Recurrent, RecurrentEncoder
from saccade.layers.recurrent.scan import Hidden
from saccade.layers.residual import LazySum
from saccade.models.transformer import BlockSizes, EncoderBlock
from saccade.ops.precision import widen

FIRST = len(SPECIAL)  # the id of place 0
LEAST = 1e-30  # of a weight: its logarithm is a number


class PointerSizes(NamedTuple):
    """The sizes and parts of a pointer network."""

    width: int = 128
    encoder: str = "transformer"  # which knows no order, or rnn
    num_layers: int = 2
    num_heads: int = 4
    cell: str = "gru"
    score: str = "additive"
    once: bool = True  # no place is pointed at again


class Places(NamedTuple):
    """The places of a source: vectors of their elements, what the score needs of them, how many, and which are left."""

    element_BSD: Tensor
    value_BSD: Tensor
    memory_BSD: Tensor
    length_B: Tensor
    left_BS: Tensor

    def rows(self, index_N: Tensor) -> Places:
        return Places(*(tensor[index_N] for tensor in self))


class PointerState(NamedTuple):
    """The decoder between two steps."""

    hidden: Hidden
    places: Places

    def rows(self, index_N: Tensor) -> PointerState:
        """Return the state of other rows: a beam that was reordered, or a batch that shrank."""
        return PointerState(tuple(state[:, index_N] for state in self.hidden), self.places.rows(index_N))


@final
class SetEncoder(nn.Module):
    """Blocks of self-attention without positions: an element knows all others, but not where it stands."""

    def __init__(self, sizes: PointerSizes) -> None:
        super().__init__()
        block = BlockSizes(sizes.width, sizes.num_heads, 2 * sizes.width)
        self.blocks = nn.ModuleList(EncoderBlock(block) for _ in range(sizes.num_layers))
        self.norm = nn.LayerNorm(sizes.width)
        self.first = nn.Linear(sizes.width, sizes.width)

    def forward(self, x_BSD: Tensor, length_B: Tensor) -> tuple[Tensor, Hidden]:
        """Return a vector for each element, and a state to begin with from their mean."""
        x, place = LazySum(x_BSD), Positions.following(0, x_BSD.shape[1], x_BSD.device)
        for block in self.blocks:
            x = block(x, masks.padding(length_B), place, None)
        value_BSD = x.end(self.norm)
        real_BS = torch.arange(x_BSD.shape[1], device=x_BSD.device) < length_B[:, None]
        mean_BD = (value_BSD * real_BS.unsqueeze(-1)).sum(1) / length_B[:, None]
        return value_BSD, (torch.tanh(self.first(mean_BD)).unsqueeze(0),)


@final
class PointingAttention(nn.Module):
    """The attention that is the output: a_ts = softmax_s score(d_t, e_s) over the places that are left."""

    kind = "cross"

    def __init__(self, sizes: PointerSizes) -> None:
        super().__init__()
        self.score: Score = SCORES[sizes.score](sizes.width, sizes.width)

    def forward(
        self, query_BTD: Tensor, places: Places, mask: Mask, *, return_weights: bool = True
    ) -> tuple[Tensor, ...]:
        """Return what is read, [B, T, D], and the weights, [B, T, S]."""
        found = attend(
            query_BTD,
            None,
            places.value_BSD,
            memory=places.memory_BSD,
            score=self.score,
            mask=mask,
            return_weights=return_weights,
        )
        assert isinstance(found, tuple)
        return found

    def value_norms(self, _query_BTD: Tensor, places: Places, *_: object, **__: object) -> Tensor:
        """Return the lengths of the vectors that are weighed, [B, 1, S]."""
        return places.value_BSD.norm(dim=-1).unsqueeze(1)


@final
class PointerNetwork(nn.Module):
    """An encoder of vectors, and a recurrent decoder that reads the element it pointed at last (section 2.3)."""

    def __init__(self, element_width: int, sizes: PointerSizes) -> None:
        super().__init__()
        self.once = sizes.once
        self.embed = nn.Linear(element_width, sizes.width)
        self.start_D = nn.Parameter(torch.randn(sizes.width) * sizes.width**-0.5)  # what is read first
        self.end_D = nn.Parameter(torch.randn(sizes.width) * sizes.width**-0.5)  # the element of the last place
        self.encoder: nn.Module = SetEncoder(sizes)
        if sizes.encoder == "rnn":
            self.encoder = RecurrentEncoder(
                sizes.width, sizes.width, cell=sizes.cell, num_layers=sizes.num_layers, dropout=0.0
            )
        layers = sizes.num_layers if sizes.encoder == "rnn" else 1
        self.decoder = Recurrent(sizes.width, sizes.width, cell=sizes.cell, num_layers=layers)
        self.pointer = PointingAttention(sizes)

    def start(self, source_BSC: Tensor, length_B: Tensor) -> PointerState:
        """Read elements; lengths count the place behind the last, whose element is a learned one."""
        is_end_BS = torch.arange(source_BSC.shape[1], device=length_B.device) == length_B[:, None] - 1
        element_BSD = torch.where(is_end_BS.unsqueeze(-1), self.end_D, self.embed(source_BSC))
        value_BSD, hidden = self.encoder(element_BSD, length_B)
        if isinstance(self.decoder.cells, nn.LSTM) and len(hidden) == 1:
            hidden = (*hidden, torch.zeros_like(hidden[0]))
        left_BS = torch.arange(source_BSC.shape[1], device=length_B.device) < length_B[:, None]
        places = Places(element_BSD, value_BSD, self.pointer.score.memory(value_BSD), length_B, left_BS)
        return PointerState(hidden, places)

    def advance(self, state: PointerState, read_BT: Tensor) -> tuple[Tensor, PointerState]:
        """Read some ids and return the log-probabilities of the next ones, [B, T, FIRST + S], and the state."""
        weight_BTS, later = self.point(state, read_BT)
        is_end_BS = torch.arange(weight_BTS.shape[-1], device=read_BT.device) == later.places.length_B[:, None] - 1
        log_BTS = weight_BTS.clamp_min(LEAST).log().masked_fill(weight_BTS == 0, -torch.inf)
        end_BT = torch.where(is_end_BS.unsqueeze(1), log_BTS, -torch.inf).amax(-1)
        special = [end_BT if index == END else torch.full_like(end_BT, -torch.inf) for index in range(FIRST)]
        return torch.cat([torch.stack(special, -1), log_BTS.masked_fill(is_end_BS.unsqueeze(1), -torch.inf)], -1), later

    def logits(self, vectors: Tensor) -> Tensor:
        return vectors  # they are log-probabilities already

    def forward(self, source_BSC: Tensor, length_B: Tensor, read_BT: Tensor) -> Tensor:
        """Read a whole target (teacher forcing) and return the weights on the places, [B, T, S]."""
        return self.point(self.start(source_BSC, length_B), read_BT)[0]

    def point(self, state: PointerState, read_BT: Tensor) -> tuple[Tensor, PointerState]:
        """Read some ids and return the weights on the places after each, [B, T, S], and the state."""
        places = state.places
        index_BT = (read_BT - FIRST).clamp(min=0)
        element_BTD = places.element_BSD.gather(1, index_BT.unsqueeze(-1).expand(-1, -1, places.element_BSD.shape[-1]))
        is_place_BT = read_BT >= FIRST
        x_BTD = torch.where(is_place_BT.unsqueeze(-1), element_BTD, self.start_D)
        query_BTD, hidden = self.decoder(x_BTD, state.hidden)
        left_BTS = self._find_left(places.left_BS, index_BT, is_place_BT)
        _, weight_BTS = self.pointer(query_BTD, places, masks.dense(left_BTS), return_weights=True)
        return widen(weight_BTS), PointerState(hidden, places._replace(left_BS=left_BTS[:, -1]))

    def _find_left(self, left_BS: Tensor, index_BT: Tensor, is_place_BT: Tensor) -> Tensor:
        """Return which places may be pointed at after each step, [B, T, S]."""
        left_BTS = left_BS.unsqueeze(1).expand(-1, index_BT.shape[1], -1)
        if not self.once:
            return left_BTS
        step_S = torch.arange(left_BS.shape[1], device=left_BS.device)
        now_BTS = (index_BT.unsqueeze(-1) == step_S) & is_place_BT.unsqueeze(-1)
        return left_BTS & ~(now_BTS.cumsum(1) > 0)
