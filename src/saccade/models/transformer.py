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
from saccade.layers.embedding import Read, add_positions, embed_reads
from saccade.layers.feed_forward import FeedForward
from saccade.layers.residual import LazyDropout, LazySum, Norm
from saccade.models.transformer_state import BlockMemory, SlotState, StepScope, TransformerState
from saccade.ops.lazy_norm import Rows
from saccade.ops.linear import linear
from saccade.ops.pass_context import draw_singly

AnyState = TypeVar("AnyState", TransformerState, SlotState)


class Dropouts(NamedTuple):
    """The three dropouts: on residuals and embeddings, on attention weights, inside the feed-forward network."""

    residual: float = 0.1
    attention: float = 0.0
    activation: float = 0.0


class BlockSizes(NamedTuple):
    """The sizes and parts of a block."""

    width: int
    num_heads: int
    hidden_width: int
    activation: str = "relu"
    norm: str = "pre"
    score: str = "scaled_dot"
    normalizer: str = "softmax"
    positions: str = "sinusoidal"
    window: int | None = None  # steps to either side that self-attention reaches; None: all
    dropouts: Dropouts = Dropouts()

    def self_attention(self, kind: str | None) -> MultiHeadAttention:
        """Build a self-attention of this size."""
        return self._attention(Rotary(self.width // self.num_heads) if self.positions == "rotary" else None, kind)

    def cross_attention(self) -> MultiHeadAttention:
        """Build an attention to another sequence, whose positions are not ours."""
        return self._attention(None, "cross")

    def encoder_mask(self) -> Mask:
        """Return the mask of an encoder's self-attention."""
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
        """Build a feed-forward network of this size."""
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
    """A block of self-attention and feed-forward layers."""

    def __init__(self, sizes: BlockSizes, kind: str | None = "encoder") -> None:
        super().__init__()
        self.attention, self.feed_forward = sizes.self_attention(kind), sizes.feed_forward()
        self.residuals = nn.ModuleList(Residual(sizes) for _ in range(2))

    def forward(self, x: LazySum, mask: Mask, place: Positions, bias: Tensor | None) -> LazySum:
        x = self.residuals[0](x, lambda y: self.attention(y, mask=mask, place=place, bias=bias))
        return cast(LazySum, self.residuals[1](x, self.feed_forward))

    def extend(
        self, x: LazySum, past: KeyValue | None, mask: Mask, place: Positions, bias: Tensor | None
    ) -> tuple[LazySum, KeyValue]:
        """Read the steps after those already remembered; return the memory with them."""

        def own(y: Rows) -> Tensor:
            nonlocal past
            answer, past = self.attention(y, past=past, mask=mask, place=place, bias=bias, return_memory=True)
            return cast(Tensor, answer)

        x = self.residuals[1](self.residuals[0](x, own), self.feed_forward)
        return x, cast(KeyValue, past)


@final
class DecoderBlock(nn.Module):
    """A block of causal self-attention, attention to the source and feed-forward layers."""

    def __init__(self, sizes: BlockSizes) -> None:
        super().__init__()
        self.own, self.cross = sizes.self_attention("decoder"), sizes.cross_attention()
        self.feed_forward = sizes.feed_forward()
        self.residuals = nn.ModuleList(Residual(sizes) for _ in range(3))

    def read(self, source_BSD: Tensor) -> KeyValue:
        """Compute the source's keys and values for this block, once."""
        return self.cross.memory(source_BSD)

    def forward(self, x: LazySum, memory: BlockMemory, scope: StepScope) -> tuple[LazySum, BlockMemory]:
        """Read the steps after those already remembered; the memory grows by them."""
        past = memory.past

        def own(y: Rows) -> Tensor:
            nonlocal past
            answer, past = self.own(
                y, past=past, mask=scope.own, place=scope.place, bias=scope.bias, return_memory=True
            )
            return cast(Tensor, answer)

        def cross(y: Rows) -> Tensor:
            return cast(Tensor, self.cross(y, memory=memory.source, mask=scope.source))

        x = self.residuals[1](self.residuals[0](x, own), cross)
        return self.residuals[2](x, self.feed_forward), BlockMemory(past, memory.source)


@final
class Transformer(nn.Module):
    """An encoder-decoder of blocks: from source ids to distributions over target ids.

    `source` is the size of the source vocabulary, or a module that turns another input into vectors [B, S, D] and
    their lengths. With one vocabulary, all three embeddings are one matrix. An `output_bias` is a number for each id
    that is added to its logit.
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
        output_bias: bool = False,
        max_length: int = 1024,
    ) -> None:
        super().__init__()
        self.sizes, self.recomputes = sizes, False
        self.target = nn.Embedding(target_vocabulary, sizes.width)
        self.source: nn.Module = self.target
        if not share_embeddings:
            self.source = nn.Embedding(source, sizes.width) if isinstance(source, int) else source
        self.output = self.target if share_output else nn.Embedding(target_vocabulary, sizes.width)  # section 3.4
        self.output_bias = nn.Parameter(torch.zeros(target_vocabulary)) if output_bias else None
        for embedding in dict.fromkeys((self.target, self.source, self.output)):
            if isinstance(embedding, nn.Embedding):
                nn.init.normal_(embedding.weight, std=sizes.width**-0.5)
        self.positions = build_positions(sizes, max_length)
        relative = sizes.positions == "relative"
        self.encoder_bias = Relative(sizes.num_heads, causal=False) if relative else None
        self.decoder_bias = Relative(sizes.num_heads, causal=True) if relative else None
        self.encoder = nn.ModuleList(EncoderBlock(sizes) for _ in range(num_encoder_layers))
        self.decoder = nn.ModuleList(DecoderBlock(sizes) for _ in range(num_decoder_layers))
        is_pre = sizes.norm == "pre"
        self.encoder_norm = Norm(sizes.width) if is_pre else nn.Identity()
        self.decoder_norm = Norm(sizes.width) if is_pre else nn.Identity()

    def start(self, source_BS: Tensor, source_length_B: Tensor) -> TransformerState:
        """Read the source and return the state before the first step."""
        return self.read_source(source_BS, source_length_B)[0]

    def read_source(self, source_BS: Tensor, source_length_B: Tensor) -> tuple[TransformerState, Tensor]:
        """Return the state before the first step, and the encoder's vectors, [B, S, D]."""
        vectors_BSD, source_length_B, place = self._embed_source(source_BS, source_length_B)
        mask = masks.padding(source_length_B) & self.sizes.encoder_mask()
        blocks, memory_BSD = self._read(vectors_BSD, mask, place)
        return TransformerState(blocks, source_length_B, 0), memory_BSD

    @property
    def max_places(self) -> int | None:
        """The number of steps that a decoder may read; None: any number."""
        return len(self.positions.table) if isinstance(self.positions, Learned) else None

    def advance(self, state: AnyState, read_BT: Tensor) -> tuple[Tensor, AnyState]:
        """Read some target ids and return the decoder's vectors [B, T, D] and the state after them."""
        count = read_BT.shape[1]
        scope = state.scope(count, self.sizes.window, self.decoder_bias)
        (x_BTD,) = self._embed(self.target, (read_BT, scope.place))
        vectors_BTD, blocks = self._write(state.blocks, x_BTD, scope)
        return vectors_BTD, state.after(blocks, count)

    def refuses_slots(self) -> str | None:
        """Say why `slots` can't be used; None if they can."""
        score = SCORES[self.sizes.score]
        return f"the score {self.sizes.score} knows only so many positions" if score.reads_position else None

    def slots(self, slots: Slots, num_source_steps: int) -> SlotState:
        """Return an empty state for many sentences, each at a step of its own; `advance` changes it in place."""
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

    def forward_packed(self, source: PackedRow, target: PackedRow) -> Tensor:
        """Read sentences that are packed into one row (teacher forcing): the decoder's vectors, [1, T, D]."""
        assert isinstance(self.source, nn.Embedding)
        place, own_place = (Positions(row.place_T, row.longest) for row in (source, target))
        read, own_read = (source.ids_1T, place), (target.ids_1T, own_place)
        if self.source is self.target:
            x_1SD, x_1TD = self._embed(self.target, read, own_read)
        else:
            (x_1SD,), (x_1TD,) = self._embed(self.source, read), self._embed(self.target, own_read)
        itself = masks.packed(source.start_N, num_queries=source.ids_1T.shape[1], longest=source.longest)
        blocks, _ = self._read(x_1SD, itself & self.sizes.encoder_mask(), place)
        own = masks.packed(target.start_N, num_queries=target.ids_1T.shape[1], longest=target.longest)
        across = masks.packed(
            target.start_N,
            source.start_N,
            num_queries=target.ids_1T.shape[1],
            num_keys=source.ids_1T.shape[1],
            longest=max(source.longest, target.longest),
        )
        scope = StepScope(own_place, own & masks.causal() & self.sizes.encoder_mask(), across, None)
        return self._write(blocks, x_1TD, scope)[0]

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities of the next id, [..., V]."""
        return linear(vectors, [self.output.weight], [] if self.output_bias is None else [self.output_bias])

    def forward(self, source_BS: Tensor, source_length_B: Tensor, read_BT: Tensor) -> Tensor:
        """Read a whole target (teacher forcing) and return the decoder's vectors, [B, T, D]."""
        return self.advance(self.start(source_BS, source_length_B), read_BT)[0]

    def _embed_source(self, source_BS: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor, Positions]:
        """Turn the source into vectors; return them with their lengths and positions."""
        if isinstance(self.source, nn.Embedding):
            place = Positions.following(0, source_BS.shape[1], source_BS.device)
            return self._embed(self.source, (source_BS, place))[0], length_B, place
        vectors_BSD, length_B = self.source(source_BS, length_B)
        place = Positions.following(0, vectors_BSD.shape[1], vectors_BSD.device)
        return self._add_positions(vectors_BSD, place), length_B, place

    def _read(self, x_BSD: Tensor, mask: Mask, place: Positions) -> tuple[tuple[BlockMemory, ...], Tensor]:
        """Run the encoder and return its vectors, first as the keys and values of each decoder block."""
        bias = None if self.encoder_bias is None else self.encoder_bias(place, x_BSD.shape[1])
        x = LazySum(x_BSD)
        for block in self.encoder:
            x = self._run_block(block, x, mask, place, bias)
        memory_BSD = x.end(self.encoder_norm)
        return tuple(
            BlockMemory(None, cast(DecoderBlock, block).read(memory_BSD)) for block in self.decoder
        ), memory_BSD

    def _write(
        self, memories: tuple[BlockMemory, ...], x_BTD: Tensor, scope: StepScope
    ) -> tuple[Tensor, tuple[BlockMemory, ...]]:
        """Run the decoder and return its vectors at these steps, and the memories of its blocks after them."""
        x, later = LazySum(x_BTD), list[BlockMemory]()
        for block, memory in zip(self.decoder, memories, strict=True):
            x, remembered = self._run_block(block, x, memory, scope)
            later.append(remembered)
        return x.end(self.decoder_norm), tuple(later)

    def _run_block(self, block: nn.Module, x: LazySum, *inputs: Any) -> Any:
        """Run a block; with `recomputes` it runs again in the backward pass, which needs less memory."""
        if self.recomputes and self.training:
            return checkpoint(block, LazySum(x.total()), *inputs, use_reentrant=False, context_fn=draw_singly)
        return block(x, *inputs)

    def _embed(self, table: nn.Embedding, *reads: Read) -> list[Tensor]:
        """Embed several inputs at once."""
        return embed_reads(table, reads, self.positions, self._dropped)

    def _add_positions(self, x_BTD: Tensor, place: Positions) -> Tensor:
        return add_positions(x_BTD, place, self.positions, self._dropped)

    @property
    def _dropped(self) -> float:
        """The share that is dropped from embeddings now."""
        return self.sizes.dropouts.residual if self.training else 0.0


def build_positions(sizes: BlockSizes, max_length: int) -> Sinusoidal | Learned | None:
    """Build the positions that are added to embeddings, if any; those of other kinds are in the attention."""
    if sizes.positions not in POSITIONS:
        raise ValueError(f"positions: {sizes.positions!r} given; allowed: {', '.join(POSITIONS)}")
    if sizes.positions == "learned":
        return Learned(sizes.width, max_length=max_length)
    is_sinusoidal, halves = sizes.positions.startswith("sinusoidal"), sizes.positions == "sinusoidal_halves"
    return Sinusoidal(sizes.width, halves=halves) if is_sinusoidal else None
