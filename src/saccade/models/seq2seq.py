"""The RNN encoder-decoder: without attention (Sutskever 2014), Bahdanau's (2015), or Luong's (2015)."""

from __future__ import annotations

from typing import NamedTuple, cast, final

import torch
from torch import Tensor, nn

from saccade.attention import NORMALIZERS, SCORES, attend, masks
from saccade.attention.dropout import dropout
from saccade.attention.scores import Score
from saccade.layers.recurrent import Hidden, Recurrent, RecurrentEncoder

SCOPES = ("global", "local_m", "local_p")


class Source(NamedTuple):
    """What a decoder asks: the encoder's vectors, and what the score made of them."""

    value_BSD: Tensor
    memory_BSD: Tensor
    length_B: Tensor

    def rows(self, index_N: Tensor) -> Source:
        """Other rows of the batch."""
        return Source(*(tensor[index_N] for tensor in self))


class State(NamedTuple):
    """A decoder between two steps. `fed` is what the next step reads beside its word, [B, D]."""

    hidden: Hidden
    fed_BD: Tensor
    source: Source
    num_steps: int

    def rows(self, index_N: Tensor) -> State:
        """The state of other rows: a beam that was reordered, or a batch that shrank."""
        hidden = tuple(state[:, index_N] for state in self.hidden)
        return State(hidden, self.fed_BD[index_N], self.source.rows(index_N), self.num_steps)


class RecurrentSizes(NamedTuple):
    """What encoder and decoder are made of."""

    width: int
    embedding_width: int
    num_layers: int = 1
    cell: str = "gru"
    dropout: float = 0.0


class Look(NamedTuple):
    """How a decoder looks at its source."""

    score: str = "additive"
    normalizer: str = "softmax"
    scope: str = "global"
    radius: int = 10  # of the local scopes (Luong 2015, section 4.1)


ADDITIVE = Look()


@final
class Aligner(nn.Module):
    """c_t = sum_s a_ts h_s with any score, normaliser and scope; local scopes as in Luong 2015, section 3.2."""

    def __init__(self, width: int, look: Look) -> None:
        super().__init__()
        if look.scope not in SCOPES:
            raise ValueError(f"scope: {look.scope!r} given; allowed: {', '.join(SCOPES)}")
        self.score: Score = SCORES[look.score](width, width)
        self.normalizer = NORMALIZERS[look.normalizer]()
        self.radius = look.radius if look.scope == "local_m" else None
        self.local = masks.LocalP(width, radius=look.radius) if look.scope == "local_p" else None

    def forward(self, query_BTD: Tensor, source: Source, first: int, record: list[Tensor] | None) -> Tensor:
        """Contexts [B, T, D] of the queries from step `first` on; `record` gets the weights [B, T, S]."""
        mask = masks.padding(source.length_B)
        if self.radius is not None:
            mask = mask & masks.local_m(self.radius, step=first)
        if self.local is not None:
            mask = mask & self.local(query_BTD, source.length_B)
        found = attend(
            query_BTD,
            None,
            source.value_BSD,
            memory=source.memory_BSD,
            score=self.score,
            normalizer=self.normalizer,
            mask=mask,
            return_weights=record is not None,
        )
        if record is None:
            return cast(Tensor, found)
        record.append(found[1])
        return found[0]


@final
class PlainDecoder(nn.Module):
    """No attention: all it knows of the source is the encoder's last state (Sutskever 2014, section 2)."""

    fed_width = 0

    def __init__(self, sizes: RecurrentSizes) -> None:
        super().__init__()
        self.layers = _layers(sizes, 0)
        self.readout = nn.Linear(sizes.width, sizes.embedding_width)
        self.dropout = sizes.dropout

    def memory(self, value_BSD: Tensor) -> Tensor:
        """Nothing."""
        return value_BSD[..., :0]

    def first(self, hidden: Hidden) -> Hidden:
        """The encoder's state goes on."""
        return hidden

    def forward(self, x_BTD: Tensor, state: State, record: list[Tensor] | None) -> tuple[Tensor, State]:
        """All steps at once."""
        del record
        output_BTD, hidden = self.layers(x_BTD, state.hidden)
        vectors_BTD = self.readout(dropout(output_BTD, self.dropout, self.training))
        return vectors_BTD, state._replace(hidden=hidden)


@final
class BahdanauDecoder(nn.Module):
    """c_t from s_t-1, s_t = f(s_t-1, y_t-1, c_t), p(y_t) from s_t, y_t-1 and c_t through a maxout layer.

    Bahdanau 2015, section 3.1 and appendix A.2.2; s_0 = tanh(W h) of the encoder's last state.
    """

    fed_width = 0

    def __init__(self, sizes: RecurrentSizes, look: Look) -> None:
        super().__init__()
        self.aligner = Aligner(sizes.width, look)
        self.layers = _layers(sizes, sizes.width)
        self.bridge = nn.Linear(sizes.width, sizes.width)
        self.readout = nn.Linear(2 * sizes.width + sizes.embedding_width, 2 * sizes.embedding_width)
        self.dropout = sizes.dropout

    def memory(self, value_BSD: Tensor) -> Tensor:
        """The score's once-per-source work."""
        return self.aligner.score.memory(value_BSD)

    def first(self, hidden: Hidden) -> Hidden:
        """tanh(W h), in every layer."""
        return (torch.tanh(self.bridge(hidden[0])), *hidden[1:])

    def forward(self, x_BTD: Tensor, state: State, record: list[Tensor] | None) -> tuple[Tensor, State]:
        """Step by step; only what depends on the step before is inside the loop."""
        hidden, contexts, outputs = state.hidden, [], []
        for step, x_B1D in enumerate(x_BTD.split(1, 1), state.num_steps):
            query_B1D = hidden[0][-1].unsqueeze(1)
            contexts.append(self.aligner(query_B1D, state.source, step, record))
            output_B1D, hidden = self.layers(torch.cat([x_B1D, contexts[-1]], -1), hidden)
            outputs.append(output_B1D)
        joined_BTD = torch.cat([torch.cat(outputs, 1), x_BTD, torch.cat(contexts, 1)], -1)
        pairs_BTD2 = self.readout(dropout(joined_BTD, self.dropout, self.training)).unflatten(-1, (-1, 2))
        return pairs_BTD2.amax(-1), state._replace(hidden=hidden)


@final
class LuongDecoder(nn.Module):
    """c_t from s_t, h~_t = tanh(W_c [c_t; s_t]) (Luong 2015, section 3). Without feeding all steps run at once."""

    def __init__(self, sizes: RecurrentSizes, look: Look, *, feeds_input: bool) -> None:
        super().__init__()
        self.fed_width = sizes.embedding_width if feeds_input else 0
        self.aligner = Aligner(sizes.width, look)
        self.layers = _layers(sizes, self.fed_width)
        self.combine = nn.Linear(2 * sizes.width, sizes.embedding_width)
        self.dropout = sizes.dropout

    def memory(self, value_BSD: Tensor) -> Tensor:
        """The score's once-per-source work."""
        return self.aligner.score.memory(value_BSD)

    def first(self, hidden: Hidden) -> Hidden:
        """The encoder's state goes on."""
        return hidden

    def forward(self, x_BTD: Tensor, state: State, record: list[Tensor] | None) -> tuple[Tensor, State]:
        """Attentional vectors h~; with input feeding (section 3.3) each is read with the next word."""
        if not self.fed_width:
            vectors_BTD, state = self._attend(x_BTD, state, state.num_steps, record)
        else:
            vectors = []
            for step, x_B1D in enumerate(x_BTD.split(1, 1), state.num_steps):
                vector_B1D, state = self._attend(torch.cat([x_B1D, state.fed_BD.unsqueeze(1)], -1), state, step, record)
                state = state._replace(fed_BD=vector_B1D.squeeze(1))
                vectors.append(vector_B1D)
            vectors_BTD = torch.cat(vectors, 1)
        return dropout(vectors_BTD, self.dropout, self.training), state  # what is fed back stays whole

    def _attend(self, x_BTD: Tensor, state: State, first: int, record: list[Tensor] | None) -> tuple[Tensor, State]:
        query_BTD, hidden = self.layers(x_BTD, state.hidden)
        context_BTD = self.aligner(query_BTD, state.source, first, record)
        vector_BTD = torch.tanh(self.combine(torch.cat([context_BTD, query_BTD], -1)))
        return vector_BTD, state._replace(hidden=hidden)


Decoder = PlainDecoder | BahdanauDecoder | LuongDecoder
DECODERS = ("none", "bahdanau", "luong")


@final
class Seq2Seq(nn.Module):
    """Source ids to distributions over target ids, through an RNN that reads and one that writes.

    The source is a number of ids, or a module that makes vectors [B, S, D] and their lengths of something else.
    """

    def __init__(
        self,
        *,
        source: int | nn.Module,
        target_vocabulary: int,
        sizes: RecurrentSizes,
        attention: str = "bahdanau",
        look: Look = ADDITIVE,
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
        self.decoder = _decoder(attention, sizes, look, feeds_input)
        self.dropout, self.scale = sizes.dropout, width**0.5

    def start(self, source_BS: Tensor, source_length_B: Tensor) -> State:
        """Read the source: the state before the first step."""
        x_BSD, source_length_B = self._read(source_BS, source_length_B)
        value_BSD, hidden = self.encoder(x_BSD, source_length_B)
        source = Source(value_BSD, self.decoder.memory(value_BSD), source_length_B)
        fed_BD = value_BSD.new_zeros(len(source_BS), self.decoder.fed_width)
        return State(self.decoder.first(hidden), fed_BD, source, 0)

    def advance(self, state: State, read_BT: Tensor, record: list[Tensor] | None = None) -> tuple[Tensor, State]:
        """Read some target ids: the vectors [B, T, D] at each, and the state after them."""
        vectors_BTD, later = self.decoder(self._embed(self.target, read_BT), state, record)
        return vectors_BTD, later._replace(num_steps=state.num_steps + read_BT.shape[1])

    def logits(self, vectors: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the next id, [..., V]."""
        return vectors @ self.output.weight.mT

    def forward(self, source_BS: Tensor, source_length_B: Tensor, read_BT: Tensor) -> Tensor:
        """Teacher forcing: the vectors at every step, [B, T, D]."""
        return self.advance(self.start(source_BS, source_length_B), read_BT)[0]

    def cross_attention(self, source_BS: Tensor, source_length_B: Tensor, read_BT: Tensor) -> Tensor:
        """What the decoder weighed at every step, [B, 1, 1, T, S]; without attention, [B, 0, 0, T, S]."""
        record: list[Tensor] = []
        state = self.start(source_BS, source_length_B)
        self.advance(state, read_BT, record)
        if not record:
            num_steps = state.source.value_BSD.shape[1]
            return torch.zeros(len(read_BT), 0, 0, read_BT.shape[1], num_steps, device=read_BT.device)
        return torch.cat(record, 1)[:, None, None]

    def _read(self, source_BS: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        """The source as vectors, and how many there are of them."""
        if isinstance(self.source, nn.Embedding):
            return self._embed(self.source, source_BS), length_B
        vectors_BSD, length_B = self.source(source_BS, length_B)
        return vectors_BSD, length_B

    def _embed(self, table: nn.Embedding, ids_BT: Tensor) -> Tensor:
        return dropout(table(ids_BT) * self.scale, self.dropout, self.training)


def _decoder(attention: str, sizes: RecurrentSizes, look: Look, feeds_input: bool) -> Decoder:
    if attention == "none":
        return PlainDecoder(sizes)
    if attention == "bahdanau":
        return BahdanauDecoder(sizes, look)
    if attention == "luong":
        return LuongDecoder(sizes, look, feeds_input=feeds_input)
    raise ValueError(f"attention: {attention!r} given; allowed: {', '.join(DECODERS)}")


def _layers(sizes: RecurrentSizes, fed_width: int) -> Recurrent:
    return Recurrent(
        sizes.embedding_width + fed_width,
        sizes.width,
        cell=sizes.cell,
        num_layers=sizes.num_layers,
        dropout=sizes.dropout,
    )
