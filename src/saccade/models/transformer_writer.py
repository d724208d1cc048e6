"""A Transformer without an encoder: blocks of causal self-attention and feed-forward layers (Liu 2018)."""

from __future__ import annotations

from typing import NamedTuple, cast, final

import torch
from torch import Tensor, nn

from saccade.attention import KeyValue, masks
from saccade.attention.masks import Mask
from saccade.attention.positions import Positions, Relative
from saccade.data.stream import TextWindow
from saccade.layers.embedding import embed_reads
from saccade.layers.residual import LazySum, Norm
from saccade.models.transformer import BlockSizes, EncoderBlock, build_positions
from saccade.ops.linear import linear


class TextState(NamedTuple):
    """The ids that have been read, [B, S], and their keys and values in each block."""

    read_BS: Tensor
    past: tuple[KeyValue | None, ...]

    def rows(self, index_N: Tensor) -> TextState:
        past = tuple(None if one is None else one.rows(index_N) for one in self.past)
        return TextState(self.read_BS[index_N], past)


@final
class TransformerWriter(nn.Module):
    """From the ids of a text to distributions over the next one; it sees `context` steps at most."""

    def __init__(
        self, *, vocabulary: int, sizes: BlockSizes, num_layers: int, context: int, is_tied: bool = True
    ) -> None:
        super().__init__()
        self.sizes, self.context = sizes, context
        self.embedding = nn.Embedding(vocabulary, sizes.width)
        self.output = self.embedding if is_tied else nn.Embedding(vocabulary, sizes.width)
        for table in dict.fromkeys((self.embedding, self.output)):
            nn.init.normal_(table.weight, std=sizes.width**-0.5)
        self.positions = build_positions(sizes, context)
        self.bias = Relative(sizes.num_heads, causal=True) if sizes.positions == "relative" else None
        self.blocks = nn.ModuleList(EncoderBlock(sizes, kind="decoder") for _ in range(num_layers))
        self.norm = Norm(sizes.width) if sizes.norm == "pre" else nn.Identity()

    def forward(self, window: TextWindow) -> Tensor:
        """Read rows of a stream, each from its own beginning: a vector for each id, [B, T, D]."""
        steps = window.read_BT.shape[1]
        x, place, mask, bias = self._enter(window.read_BT, 0)
        assert steps <= self.context
        for block in self.blocks:
            x = block(x, mask, place, bias)
        return x.end(self.norm)

    def begin(self, num_rows: int) -> TextState:
        """Return the state before the first step."""
        read_BS = torch.empty(num_rows, 0, dtype=torch.long, device=self.embedding.weight.device)
        return TextState(read_BS, (None,) * len(self.blocks))

    def advance(self, state: TextState, read_BT: Tensor) -> tuple[Tensor, TextState]:
        """Read some ids and return a vector for each, and the state after them.

        When the context is full, its later half is read again, as the beginning of a new one.
        """
        num_steps = state.read_BS.shape[1]
        if num_steps + read_BT.shape[1] > self.context and num_steps:
            half_BS = state.read_BS[:, num_steps - min(num_steps, self.context // 2) :]
            state = self.begin(len(read_BT)) if self.context < 2 else self.advance(self.begin(len(read_BT)), half_BS)[1]
            num_steps = state.read_BS.shape[1]
        x, place, mask, bias = self._enter(read_BT, num_steps)
        later = list[KeyValue]()
        for block, past in zip(self.blocks, state.past, strict=True):
            x, remembered = cast(EncoderBlock, block).extend(x, past, mask, place, bias)
            later.append(remembered)
        return x.end(self.norm), TextState(torch.cat([state.read_BS, read_BT], 1), tuple(later))

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities of the next id, [..., V]."""
        return linear(vectors, [self.output.weight], [])

    def _enter(self, read_BT: Tensor, first: int) -> tuple[LazySum, Positions, Mask, Tensor | None]:
        """Embed some steps; return them with their places, and what each may attend to."""
        place = Positions.following(first, read_BT.shape[1], read_BT.device)
        share = self.sizes.dropouts.residual if self.training else 0.0
        (x_BTD,) = embed_reads(self.embedding, [(read_BT, place)], self.positions, share)
        mask = masks.causal(offset=first)
        if self.sizes.window is not None:
            mask = mask & masks.window(self.sizes.window, offset=first)
        return LazySum(x_BTD), place, mask, None if self.bias is None else self.bias(place, place.end)
