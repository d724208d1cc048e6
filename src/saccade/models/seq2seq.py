"""The RNN encoder-decoder: without attention (Sutskever 2014), Bahdanau's (2015), or Luong's (2015)."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.layers.embedding import embed
from saccade.layers.maxout import maxout
from saccade.layers.recurrent.layers import Recurrent, RecurrentEncoder
from saccade.layers.recurrent.scan import Hidden
from saccade.layers.recurrent.unrolled import stack_states
from saccade.models.seq2seq_attention import ADDITIVE, AttentionOptions, Source, SourceAttention, StepwiseAttention
from saccade.ops.aligned import join, linear
from saccade.ops.dropout import dropout
from saccade.ops.kernels.availability import is_fused
from saccade.ops.shared_gradients import StepLinear


class RecurrentState(NamedTuple):
    """A decoder between two steps; `fed_BD` is the vector that the next step reads beside its word."""

    hidden: Hidden
    fed_BD: Tensor
    source: Source
    num_steps: int

    def rows(self, index_N: Tensor) -> RecurrentState:
        """Return the state of other rows: a beam that was reordered, or a batch that shrank."""
        hidden = tuple(state[:, index_N] for state in self.hidden)
        return RecurrentState(hidden, self.fed_BD[index_N], self.source.rows(index_N), self.num_steps)


class RecurrentSizes(NamedTuple):
    """The sizes that encoder and decoder share."""

    width: int
    embedding_width: int
    num_layers: int = 1
    cell: str = "gru"
    dropout: float = 0.0


@final
class PlainDecoder(nn.Module):
    """A decoder without attention: it starts from the encoder's last state (Sutskever 2014, section 2)."""

    fed_width = 0

    def __init__(self, sizes: RecurrentSizes) -> None:
        super().__init__()
        self.layers = _layers(sizes, 0)
        self.readout = nn.Linear(sizes.width, sizes.embedding_width)
        self.dropout = sizes.dropout

    def memory(self, value_BSD: Tensor) -> Tensor:
        return value_BSD[..., :0]

    def first(self, hidden: Hidden) -> Hidden:
        return hidden

    def forward(self, x_BTD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        output_BTD, hidden = self.layers(x_BTD, state.hidden)
        vectors_BTD = self.readout(dropout(output_BTD, self.dropout, self.training))
        return vectors_BTD, state._replace(hidden=hidden)


@final
class BahdanauDecoder(nn.Module):
    """c_t from s_t-1, s_t = f(s_t-1, y_t-1, c_t), p(y_t) from s_t, y_t-1 and c_t through a maxout layer.

    Bahdanau 2015, section 3.1 and appendix A.2.2; s_0 = tanh(W h) of the encoder's last state.
    """

    fed_width = 0

    def __init__(self, sizes: RecurrentSizes, options: AttentionOptions) -> None:
        super().__init__()
        self.aligner = SourceAttention(sizes.width, options)
        self.layers = _layers(sizes, sizes.width)
        self.bridge = nn.Linear(sizes.width, sizes.width)
        self.readout = nn.Linear(2 * sizes.width + sizes.embedding_width, 2 * sizes.embedding_width)
        self.dropout = sizes.dropout

    def memory(self, value_BSD: Tensor) -> Tensor:
        """Compute once what the score needs of the source."""
        return self.aligner.score.memory(value_BSD)

    def first(self, hidden: Hidden) -> Hidden:
        """Return s_0 of every layer."""
        return (torch.tanh(self.bridge(hidden[0])), *hidden[1:])

    def forward(self, x_BTD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Compute step by step; only what depends on the step before is inside the loop."""
        attention, cells = StepwiseAttention(self.aligner, state.source, state.num_steps), self.layers.unroll(x_BTD)
        states, contexts, outputs = cells.begin(state.hidden), [], []
        for step in range(x_BTD.shape[1]):
            contexts.append(attention(states[-1].read_BD))
            output_BD, states = cells(step, contexts[-1], states)
            outputs.append(output_BD)
        all_BTD = join(torch.stack(outputs, 1), x_BTD, torch.stack(contexts, 1))
        all_BTD = dropout(all_BTD, self.dropout, self.training)
        vectors_BTD = maxout(linear(all_BTD, self.readout.weight, self.readout.bias))
        return vectors_BTD, state._replace(hidden=stack_states(states))


@final
class LuongDecoder(nn.Module):
    """c_t from s_t, h~_t = tanh(W_c [c_t; s_t]) (Luong 2015, section 3). Without feeding all steps run at once."""

    def __init__(self, sizes: RecurrentSizes, options: AttentionOptions, *, feeds_input: bool) -> None:
        super().__init__()
        self.fed_width = sizes.embedding_width if feeds_input else 0
        self.aligner = SourceAttention(sizes.width, options)
        self.layers = _layers(sizes, self.fed_width)
        self.combine = nn.Linear(2 * sizes.width, sizes.embedding_width)
        self.dropout = sizes.dropout

    def memory(self, value_BSD: Tensor) -> Tensor:
        """Compute once what the score needs of the source."""
        return self.aligner.score.memory(value_BSD)

    def first(self, hidden: Hidden) -> Hidden:
        return hidden

    def forward(self, x_BTD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return attentional vectors h~; with input feeding (section 3.3) each is read with the next word."""
        vectors_BTD, state = (self._step_by_step if self.fed_width else self._at_once)(x_BTD, state)
        return dropout(vectors_BTD, self.dropout, self.training), state  # what is fed back stays whole

    def _at_once(self, x_BTD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        query_BTD, hidden = self.layers(x_BTD, state.hidden)
        context_BTD = self.aligner(query_BTD, state.source, state.num_steps)
        vectors_BTD = torch.tanh(self.combine(torch.cat([context_BTD, query_BTD], -1)))
        return vectors_BTD, state._replace(hidden=hidden)

    def _step_by_step(self, x_BTD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        attention, cells = StepwiseAttention(self.aligner, state.source, state.num_steps), self.layers.unroll(x_BTD)
        combine = StepLinear(self.combine.weight, self.combine.bias)
        states, vectors = cells.begin(state.hidden), [state.fed_BD]
        for step in range(x_BTD.shape[1]):
            query_BD, states = cells(step, vectors[-1], states)
            vectors.append(torch.tanh(combine(torch.cat([attention(query_BD), query_BD], -1))))
        return torch.stack(vectors[1:], 1), state._replace(hidden=stack_states(states), fed_BD=vectors[-1])


Decoder = PlainDecoder | BahdanauDecoder | LuongDecoder
DECODERS = ("none", "bahdanau", "luong")


@final
class Seq2Seq(nn.Module):
    """An encoder-decoder of two RNNs: from source ids to distributions over target ids.

    `source` is the size of the source vocabulary, or a module that turns another input into vectors [B, S, D] and
    their lengths.
    """

    def __init__(
        self,
        *,
        source: int | nn.Module,
        target_vocabulary: int,
        sizes: RecurrentSizes,
        attention: str = "bahdanau",
        attention_options: AttentionOptions = ADDITIVE,
        direction: str = "both",
        feeds_input: bool = True,
        share_embeddings: bool = False,
        share_output: bool = True,
    ) -> None:
        super().__init__()
        width = sizes.embedding_width
        self.target = nn.Embedding(target_vocabulary, width)
        self.source: nn.Module = self.target
        if not share_embeddings:
            self.source = nn.Embedding(source, width) if isinstance(source, int) else source
        self.output = self.target if share_output else nn.Embedding(target_vocabulary, width)
        for embedding in dict.fromkeys((self.target, self.source, self.output)):
            if isinstance(embedding, nn.Embedding):
                nn.init.normal_(embedding.weight, std=width**-0.5)
        self.encoder = RecurrentEncoder(
            width,
            sizes.width,
            direction=direction,
            cell=sizes.cell,
            num_layers=sizes.num_layers,
            dropout=sizes.dropout,
        )
        self.decoder = _decoder(attention, sizes, attention_options, feeds_input)
        self.dropout, self.scale = sizes.dropout, width**0.5

    def start(self, source_BS: Tensor, source_length_B: Tensor) -> RecurrentState:
        """Read the source and return the state before the first step."""
        x_BSD, source_length_B = self._read(source_BS, source_length_B)
        value_BSD, hidden = self.encoder(x_BSD, source_length_B)
        source = Source(value_BSD, self.decoder.memory(value_BSD), source_length_B)
        fed_BD = value_BSD.new_zeros(len(source_BS), self.decoder.fed_width)
        return RecurrentState(self.decoder.first(hidden), fed_BD, source, 0)

    def read_source(self, source_BS: Tensor, source_length_B: Tensor) -> tuple[RecurrentState, Tensor]:
        """Return the state before the first step, and the encoder's vectors, [B, S, D]."""
        state = self.start(source_BS, source_length_B)
        return state, state.source.value_BSD

    def advance(self, state: RecurrentState, read_BT: Tensor) -> tuple[Tensor, RecurrentState]:
        """Read some target ids and return a vector for each, [B, T, D], and the state after them."""
        vectors_BTD, later = self.decoder(self._embed(self.target, read_BT), state)
        return vectors_BTD, later._replace(num_steps=state.num_steps + read_BT.shape[1])

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities of the next id, [..., V]."""
        return vectors @ self.output.weight.mT

    def forward(self, source_BS: Tensor, source_length_B: Tensor, read_BT: Tensor) -> Tensor:
        """Read a whole target (teacher forcing) and return a vector for each step, [B, T, D]."""
        return self.advance(self.start(source_BS, source_length_B), read_BT)[0]

    def _read(self, source_BS: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        """Turn the source into vectors [B, S, D] and their lengths."""
        if isinstance(self.source, nn.Embedding):
            return self._embed(self.source, source_BS), length_B
        vectors_BSD, length_B = self.source(source_BS, length_B)
        return vectors_BSD, length_B

    def _embed(self, table: nn.Embedding, ids_BT: Tensor) -> Tensor:
        if is_fused(table.weight):
            return embed([ids_BT], table.weight, [], None, self.dropout if self.training else 0.0)[0]
        return dropout(table(ids_BT) * self.scale, self.dropout, self.training)


def _decoder(attention: str, sizes: RecurrentSizes, options: AttentionOptions, feeds_input: bool) -> Decoder:
    if attention == "none":
        return PlainDecoder(sizes)
    if attention == "bahdanau":
        return BahdanauDecoder(sizes, options)
    if attention == "luong":
        return LuongDecoder(sizes, options, feeds_input=feeds_input)
    raise ValueError(f"attention: {attention!r} given; allowed: {', '.join(DECODERS)}")


def _layers(sizes: RecurrentSizes, fed_width: int) -> Recurrent:
    return Recurrent(
        sizes.embedding_width + fed_width,
        sizes.width,
        cell=sizes.cell,
        num_layers=sizes.num_layers,
        dropout=sizes.dropout,
    )
