"""RNNs that write text (Mikolov 2010, Zaremba 2014), some with attention to their last states (Daniluk, Cheng)."""

from __future__ import annotations

from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saccade.data.stream import TextWindow
from saccade.layers.recurrent.layers import Recurrent
from saccade.layers.recurrent.lookback import LastStates, Lookback
from saccade.layers.recurrent.lstmn import Lstmn
from saccade.ops.dropout import dropout, variational_dropout
from saccade.ops.linear import linear


class WriterDropouts(NamedTuple):
    """Dropout rates of an RNN that writes."""

    ends: float = 0.0  # of the embeddings, and of what the output reads
    hidden: float = 0.0  # of what a layer gives to the next, or to the projection behind the last
    vocabulary: float = 0.0  # of the words, whose embeddings are 0 for a step (Merity 2018, section 4.3)
    is_variational: bool = False  # the same columns at all steps of a row


KEEP_ALL = WriterDropouts()


class RecurrentWriterState(NamedTuple):
    """The state of the cells, and the last states that the output looks back to. The first axis of all is B."""

    cells: Any
    past: LastStates | tuple[()]

    def rows(self, index_N: Tensor) -> RecurrentWriterState:
        return cast(RecurrentWriterState, pytree.tree_map(lambda part: part[index_N], self))


@final
class PlainCells(nn.Module):
    """An RNN, a GRU or an LSTM between two calls; its state is [B, L, D] (twice, of an LSTM)."""

    def __init__(self, input_width: int, width: int, *, cell: str, **options: Any) -> None:
        super().__init__()
        self.width, self.num_parts = width, 1 + (cell == "lstm")
        self.layers = Recurrent(input_width, width, cell=cell, **options)

    def begin(self, num_rows: int, device: torch.device) -> tuple[Tensor, ...]:
        shape = (num_rows, self.layers.cells.num_layers, self.width)
        return tuple(torch.zeros(shape, device=device) for _ in range(self.num_parts))

    def forward(self, x_BTD: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        hidden = tuple(part_BLD.transpose(0, 1).contiguous() for part_BLD in state)
        output_BTD, after = self.layers(x_BTD, hidden)
        return output_BTD, tuple(part_LBD.transpose(0, 1) for part_LBD in after)


@final
class CarriedState(nn.Module):
    """A state between two windows of a stream, in buffers, so that checkpoints have it.

    It has two places, which are written in turn: a step that is computed twice, as a CUDA graph is recorded, reads the
    same both times.
    """

    def __init__(self, state: RecurrentWriterState) -> None:
        super().__init__()
        leaves, self._form = pytree.tree_flatten(state)
        for number, leaf in enumerate(leaves):
            self.register_buffer(f"part{number}", torch.zeros(2, *leaf.shape, dtype=leaf.dtype))

    def read(self, place: Tensor, is_first: Tensor) -> RecurrentWriterState:
        """Return the state at a place; before the first window it is zeros."""
        found = [part.index_select(0, place.view(1))[0] for part in self.buffers()]
        fresh = [torch.where(is_first, torch.zeros_like(part), part) for part in found]
        return cast(RecurrentWriterState, pytree.tree_unflatten(fresh, self._form))

    def write(self, place: Tensor, state: RecurrentWriterState) -> None:
        """Keep a state for the next window, at the other place; what is not finite would never leave it."""
        for kept, leaf in zip(self.buffers(), pytree.tree_leaves(state), strict=True):
            value = leaf.detach() if leaf.dtype == torch.bool else leaf.detach().nan_to_num(0.0, 0.0, 0.0)
            kept.index_copy_(0, (1 - place).view(1), value[None].to(kept.dtype))


@final
class RecurrentWriter(nn.Module):
    """From the ids of a text to distributions over the next one; its state is all that it knows of the text.

    Where embeddings and output are one matrix that is narrower than a state, a projection lies between state and output
    (Press & Wolf 2017, section 3).
    """

    context = None  # it sees all of a text

    def __init__(
        self,
        *,
        vocabulary: int,
        embedding_width: int,
        cells: PlainCells | Lstmn,
        lookback: Lookback | None = None,
        is_tied: bool = False,
        dropouts: WriterDropouts = KEEP_ALL,
    ) -> None:
        super().__init__()
        self.cells, self.lookback, self.dropouts = cells, lookback, dropouts
        width = cells.width if lookback is None else lookback.width
        self.embedding = nn.Embedding(vocabulary, embedding_width)
        self.output = self.embedding if is_tied else nn.Embedding(vocabulary, width)
        if self.output.embedding_dim > width:
            raise ValueError(f"embedding_width: {embedding_width} given; tied to the output it must be at most {width}")
        is_narrow = self.output.embedding_dim < width
        self.projection = nn.Linear(width, embedding_width, bias=False) if is_narrow else None
        for table in dict.fromkeys((self.embedding, self.output)):
            nn.init.uniform_(table.weight, -0.1, 0.1)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary))
        self.carried: CarriedState | None = None

    def carry(self, num_rows: int) -> None:
        """Keep the state of so many rows from one window to the next."""
        self.carried = CarriedState(self.begin(num_rows)).to(self.embedding.weight.device)

    def forward(self, window: TextWindow) -> Tensor:
        """Read rows that go on where the last window ended: a vector for each id, [B, T, D]."""
        if self.carried is None:
            return self.advance(self.begin(len(window.read_BT)), window.read_BT)[0]
        state = self.carried.read(window.place, window.is_first)
        vectors_BTD, state = self.advance(state, window.read_BT)
        self.carried.write(window.place, state)
        return vectors_BTD

    def begin(self, num_rows: int) -> RecurrentWriterState:
        """Return the state before the first step."""
        device, cells = self.embedding.weight.device, self.cells.begin(num_rows, self.embedding.weight.device)
        if self.lookback is None:
            return RecurrentWriterState(cells, ())
        return RecurrentWriterState(cells, LastStates.none(num_rows, self.lookback.span, self.cells.width, device))

    def advance(self, state: RecurrentWriterState, read_BT: Tensor) -> tuple[Tensor, RecurrentWriterState]:
        """Read some ids and return a vector for each, [B, T, D], and the state after them."""
        h_BTD, cells = self.cells(self._drop(self._embed(read_BT), self.dropouts.ends), state.cells)
        past: LastStates | tuple[()] = ()
        if self.lookback is not None:
            h_BTD, past = self.lookback(h_BTD, state.past)
        if self.projection is not None:
            h_BTD = self.projection(self._drop(h_BTD, self.dropouts.hidden))
        return self._drop(h_BTD, self.dropouts.ends), RecurrentWriterState(cells, past)

    def _drop(self, x_BTD: Tensor, share: float) -> Tensor:
        drop = variational_dropout if self.dropouts.is_variational else dropout
        return drop(x_BTD, share, self.training)

    def _embed(self, read_BT: Tensor) -> Tensor:
        """Look ids up; the same words are 0 in all rows of a step that drops words."""
        x_BTD: Tensor = self.embedding(read_BT)
        if not self.training or not self.dropouts.vocabulary:
            return x_BTD
        kept_V1 = dropout(torch.ones_like(self.embedding.weight[:, :1]), self.dropouts.vocabulary)
        return x_BTD * kept_V1[read_BT]

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities of the next id, [..., V]."""
        return linear(vectors, [self.output.weight], [self.output_bias])
