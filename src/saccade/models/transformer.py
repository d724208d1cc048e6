"""The Transformer (Vaswani 2017): encoder and decoder blocks of attention and feed-forward, pre- or post-norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast, final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from saccade.attention import SCORES, KeyValue, MultiHeadAttention, Score, masks
from saccade.attention.masks import Mask
from saccade.attention.positions import POSITIONS, Learned, Positions, Relative, Rotary, Sinusoidal
from saccade.attention.slots import Slots, can_step
from saccade.data.packing import PackedRow
from saccade.layers.embedding import embed
from saccade.layers.feed_forward import FeedForward
from saccade.layers.residual import LazyDropout, LazySum, Norm, to_block_dtype
from saccade.models.transformer_state import BlockMemory, SlotState, StepScope, TransformerState
from saccade.ops.dropout import dropout
from saccade.ops.kernels.availability import is_fused
from saccade.ops.lazy_norm import Rows
from saccade.ops.linear import linear
from saccade.ops.pass_context import draw_singly

AnyState = TypeVar("AnyState", TransformerState, SlotState)
Read = tuple[Tensor, Positions]  # ids, and where they stand


class Dropouts(NamedTuple):
    """The three dropouts: on residuals and embeddings, on attention weights, inside the feed-forward network."""

    residual: float = 0.1
    attention: float = 0.0
    activation: float = 0.0


class BlockSizes(NamedTuple):
    """What a block is made of."""

    width: int
    num_heads: int
    hidden_width: int
    activation: str = "relu"
    norm: str = "pre"
    score: str = "scaled_dot"
    normalizer: str = "softmax"
    positions: str = "sinusoidal"
    window: int | None = None  # how far self-attention sees to either side; None: everywhere
    dropouts: Dropouts = Dropouts()

    def self_attention(self, kind: str | None) -> MultiHeadAttention:
        """Build a self-attention of this size."""
        return self._attention(Rotary(self.width // self.num_heads) if self.positions == "rotary" else None, kind)

    def cross_attention(self) -> MultiHeadAttention:
        """Build an attention to another sequence, whose positions are not ours."""
        return self._attention(None, "cross")

    def scope(self) -> Mask:
        """What an encoder's self-attention sees."""
        return masks.full() if self.window is None else masks.window(self.window)

    def _attention(self, rotate: Rotary | None, kind: str | None) -> MultiHeadAttention:
        return MultiHeadAttention(
            self.width,
            self.num_heads,
            score=self.score,
            normalizer=self.normalizer,
            dropout=self.dropouts.attention,
            rotate=rotate,
            kind=kind,
        )

    def feed_forward(self) -> FeedForward:
        """A feed-forward network of this size."""
        return FeedForward(self.width, self.hidden_width, activation=self.activation, dropout=self.dropouts.activation)


@final
class Residual(nn.Module):
    """x + dropout(f(norm(x))) (pre-norm), or norm(x + dropout(f(x))) (post-norm; Vaswani 2017, section 3.1)."""

    def __init__(self, sizes: BlockSizes) -> None:
        super().__init__()
        self.norm = Norm(sizes.width)
        self.dropout = LazyDropout(sizes.dropouts.residual)
        self.is_pre = sizes.norm == "pre"

    def forward(self, x: LazySum, layer: Callable[[Rows], Tensor]) -> LazySum:
        if self.is_pre:
            return x + self.dropout(layer(self.norm(x)))
        return LazySum((x + self.dropout(layer(x.total()))).end(self.norm))


@final
class EncoderBlock(nn.Module):
    """Self-attention, feed-forward."""

    def __init__(self, sizes: BlockSizes, kind: str | None = "encoder") -> None:
        super().__init__()
        self.attention, self.feed_forward = sizes.self_attention(kind), sizes.feed_forward()
        self.residuals = nn.ModuleList(Residual(sizes) for _ in range(2))

    def forward(self, x: LazySum, mask: Mask, place: Positions, bias: Tensor | None) -> LazySum:
        x = self.residuals[0](x, lambda y: self.attention(y, mask=mask, place=place, bias=bias))
        return cast(LazySum, self.residuals[1](x, self.feed_forward))


@final
class DecoderBlock(nn.Module):
    """Causal self-attention, attention to the source, feed-forward."""

    def __init__(self, sizes: BlockSizes) -> None:
        super().__init__()
        self.own, self.cross = sizes.self_attention("decoder"), sizes.cross_attention()
        self.feed_forward = sizes.feed_forward()
        self.residuals = nn.ModuleList(Residual(sizes) for _ in range(3))

    def read(self, source_BSD: Tensor) -> KeyValue:
        """The source as this block will ask it, made once."""
        return self.cross.memory(source_BSD)

    def forward(self, x: LazySum, memory: BlockMemory, seen: StepScope) -> tuple[LazySum, BlockMemory]:
        """Read the steps after those already remembered; the memory grows by them."""
        past = memory.past

        def own(y: Rows) -> Tensor:
            nonlocal past
            answer, past = self.own(y, past=past, mask=seen.own, place=seen.place, bias=seen.bias, return_memory=True)
            return cast(Tensor, answer)

        def cross(y: Rows) -> Tensor:
            return cast(Tensor, self.cross(y, memory=memory.source, mask=seen.source))

        x = self.residuals[1](self.residuals[0](x, own), cross)
        return self.residuals[2](x, self.feed_forward), BlockMemory(past, memory.source)


@final
class Transformer(nn.Module):
    """Source ids to distributions over target ids. With one vocabulary, all three embeddings are one matrix.

    The source is a number of ids, or a module that makes vectors [B, S, D] and their lengths of something else.
    """

    def __init__(
        self,
        *,
        source: int | nn.Module,
        target_vocabulary: int,
        sizes: BlockSizes,
        num_encoder_layers: int,
        num_decoder_layers: int,
        share_embeddings: bool = False,
        share_output: bool = True,
        max_length: int = 1024,
    ) -> None:
        super().__init__()
        self.sizes, self.recomputes = sizes, False
        self.target = nn.Embedding(target_vocabulary, sizes.width)
        self.source: nn.Module = self.target
        if not share_embeddings:
            self.source = nn.Embedding(source, sizes.width) if isinstance(source, int) else source
        self.output = self.target if share_output else nn.Embedding(target_vocabulary, sizes.width)  # section 3.4
        for embedding in dict.fromkeys((self.target, self.source, self.output)):
            if isinstance(embedding, nn.Embedding):
                nn.init.normal_(embedding.weight, std=sizes.width**-0.5)
        self.positions = added_positions(sizes, max_length)
        relative = sizes.positions == "relative"
        self.encoder_bias = Relative(sizes.num_heads, causal=False) if relative else None
        self.decoder_bias = Relative(sizes.num_heads, causal=True) if relative else None
        self.encoder = nn.ModuleList(EncoderBlock(sizes) for _ in range(num_encoder_layers))
        self.decoder = nn.ModuleList(DecoderBlock(sizes) for _ in range(num_decoder_layers))
        is_pre = sizes.norm == "pre"
        self.encoder_norm = Norm(sizes.width) if is_pre else nn.Identity()
        self.decoder_norm = Norm(sizes.width) if is_pre else nn.Identity()

    def start(self, source_BS: Tensor, source_length_B: Tensor) -> TransformerState:
        """Read the source: the state before the first step."""
        vectors_BSD, source_length_B, place = self._vectors(source_BS, source_length_B)
        blocks = self._read(vectors_BSD, masks.padding(source_length_B) & self.sizes.scope(), place)
        return TransformerState(blocks, source_length_B, 0)

    @property
    def max_places(self) -> int | None:
        """How many steps a decoder may read; None: any number."""
        return len(self.positions.table) if isinstance(self.positions, Learned) else None

    def advance(self, state: AnyState, read_BT: Tensor) -> tuple[Tensor, AnyState]:
        """Read some target ids: the decoder's vectors [B, T, D] and the state after them."""
        count = read_BT.shape[1]
        seen = state.seen(count, self.sizes.window, self.decoder_bias)
        (x_BTD,) = self._embedded(self.target, (read_BT, seen.place))
        vectors_BTD, blocks = self._write(state.blocks, x_BTD, seen)
        return vectors_BTD, state.after(blocks, count)

    def refuses_slots(self) -> str | None:
        """Why `slots` can't be used, in words; None when they can."""
        score = SCORES[self.sizes.score]
        return f"the score {self.sizes.score} knows only so many positions" if score.reads_position else None

    def slots(self, slots: Slots, num_source_steps: int) -> SlotState:
        """Room for many sentences, each at a place of its own; `advance` goes on with all of them, in place."""
        blocks = [cast(DecoderBlock, block) for block in self.decoder]
        length_BN = torch.ones(len(slots), slots.width, dtype=torch.long, device=slots.place_B.device)
        if blocks and self.sizes.window is None and self.decoder_bias is None:
            slots.is_fused = can_step(cast(Score, blocks[0].own.score), blocks[0].own.normalizer, length_BN.device)
        length_R = length_BN.view(-1)
        memories = [
            BlockMemory(block.own.slot_memory(slots), block.cross.shared_memory(slots, length_R, num_source_steps))
            for block in blocks
        ]
        return SlotState(slots, tuple(memories), length_BN, num_source_steps, self.max_places)

    def packed(self, source: PackedRow, target: PackedRow) -> Tensor:
        """Teacher forcing of sentences that are packed into rows: the decoder's vectors at every step, [1, T, D]."""
        assert isinstance(self.source, nn.Embedding)
        place, own_place = (Positions(row.place_T, row.longest) for row in (source, target))
        read, own_read = (source.ids_1T, place), (target.ids_1T, own_place)
        if self.source is self.target:
            x_1SD, x_1TD = self._embedded(self.target, read, own_read)
        else:
            (x_1SD,), (x_1TD,) = self._embedded(self.source, read), self._embedded(self.target, own_read)
        itself = masks.packed(source.start_N, num_queries=source.ids_1T.shape[1], longest=source.longest)
        blocks = self._read(x_1SD, itself & self.sizes.scope(), place)
        own = masks.packed(target.start_N, num_queries=target.ids_1T.shape[1], longest=target.longest)
        across = masks.packed(
            target.start_N,
            source.start_N,
            num_queries=target.ids_1T.shape[1],
            num_keys=source.ids_1T.shape[1],
            longest=max(source.longest, target.longest),
        )
        seen = StepScope(own_place, own & masks.causal() & self.sizes.scope(), across, None)
        return self._write(blocks, x_1TD, seen)[0]

    def logits(self, vectors: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the next id, [..., V]."""
        return linear(vectors, [self.output.weight], [])

    def forward(self, source_BS: Tensor, source_length_B: Tensor, read_BT: Tensor) -> Tensor:
        """Teacher forcing: the decoder's vectors at every step, [B, T, D]."""
        return self.advance(self.start(source_BS, source_length_B), read_BT)[0]

    def _vectors(self, source_BS: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor, Positions]:
        """The source as vectors, how many there are of them, and where they stand."""
        if isinstance(self.source, nn.Embedding):
            place = Positions.following(0, source_BS.shape[1], source_BS.device)
            return self._embedded(self.source, (source_BS, place))[0], length_B, place
        vectors_BSD, length_B = self.source(source_BS, length_B)
        place = Positions.following(0, vectors_BSD.shape[1], vectors_BSD.device)
        return self._placed(vectors_BSD, place), length_B, place

    def _read(self, x_BSD: Tensor, mask: Mask, place: Positions) -> tuple[BlockMemory, ...]:
        """The source through the encoder, as each decoder block will ask it."""
        bias = None if self.encoder_bias is None else self.encoder_bias(place, x_BSD.shape[1])
        x = LazySum(x_BSD)
        for block in self.encoder:
            x = self._through(block, x, mask, place, bias)
        memory_BSD = x.end(self.encoder_norm)
        return tuple(BlockMemory(None, cast(DecoderBlock, block).read(memory_BSD)) for block in self.decoder)

    def _write(
        self, memories: tuple[BlockMemory, ...], x_BTD: Tensor, seen: StepScope
    ) -> tuple[Tensor, tuple[BlockMemory, ...]]:
        """The decoder's vectors at these steps, and what its blocks remember after them."""
        x, later = LazySum(x_BTD), list[BlockMemory]()
        for block, memory in zip(self.decoder, memories, strict=True):
            x, remembered = self._through(block, x, memory, seen)
            later.append(remembered)
        return x.end(self.decoder_norm), tuple(later)

    def _through(self, block: nn.Module, x: LazySum, *inputs: Any) -> Any:
        """A block's answer; perhaps made again in the backward pass, instead of keeping what it was made of."""
        if self.recomputes and self.training:
            return checkpoint(block, LazySum(x.total()), *inputs, use_reentrant=False, context_fn=draw_singly)
        return block(x, *inputs)

    def _embedded(self, table: nn.Embedding, *reads: Read) -> list[Tensor]:
        """Their vectors. What is read together gives the table one gradient, instead of several to add."""
        if not is_fused(table.weight) or isinstance(self.positions, Learned):
            return [self._placed(table(ids_BT) * self.sizes.width**0.5, place) for ids_BT, place in reads]
        ids, places = zip(*reads, strict=True)
        position_PD = None if self.positions is None else self.positions.table(max(place.end for place in places))
        share = self.sizes.dropouts.residual if self.training else 0.0
        return embed(ids, table.weight, places, position_PD, share)

    def _placed(self, x_BTD: Tensor, place: Positions) -> Tensor:
        if self.positions is not None:
            x_BTD = x_BTD + self.positions(place).to(x_BTD.dtype)
        return dropout(to_block_dtype(x_BTD), self.sizes.dropouts.residual, self.training)


def added_positions(sizes: BlockSizes, max_length: int) -> Sinusoidal | Learned | None:
    """The positions that are added to embeddings; the other kinds live in the attention."""
    if sizes.positions not in POSITIONS:
        raise ValueError(f"positions: {sizes.positions!r} given; allowed: {', '.join(POSITIONS)}")
    if sizes.positions == "learned":
        return Learned(sizes.width, max_length=max_length)
    return Sinusoidal(sizes.width) if sizes.positions == "sinusoidal" else None
