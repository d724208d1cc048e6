"""A language model as what every way of decoding takes: its source is the beginning of a text."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, cast, final

import torch
from torch import Tensor, nn


class TextModel(Protocol):
    """A network that reads a text and writes the next id. `context`: the most steps that it sees; None: all."""

    context: int | None

    def begin(self, num_rows: int) -> Any:
        """Return the state before the first step."""

    def advance(self, state: Any, read_BT: Tensor) -> tuple[Tensor, Any]:
        """Read some ids and return a vector for each, and the state after the last."""

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities of the next id."""


class ContinuedState(NamedTuple):
    """The state of a model that has read all of a beginning but its last id; None: that too."""

    state: Any
    last_B1: Tensor | None

    def rows(self, index_N: Tensor) -> ContinuedState:
        return ContinuedState(self.state.rows(index_N), None if self.last_B1 is None else self.last_B1[index_N])


@final
class ContinuedWriter(nn.Module):
    """A stepper that goes on with texts: all beginnings of a batch, <s> included, have the same length.

    A search begins by reading <s>; here that stands for the beginning's last id.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._model = cast(TextModel, network)

    def start(self, source_BS: Tensor, source_length_B: Tensor) -> ContinuedState:
        """Read the beginnings, as much as the model sees."""
        assert torch.equal(source_length_B, torch.full_like(source_length_B, source_BS.shape[1]))
        seen_BS = source_BS if self._model.context is None else source_BS[:, -self._model.context :]
        state = self._model.begin(len(seen_BS))
        if seen_BS.shape[1] > 1:
            _, state = self._model.advance(state, seen_BS[:, :-1])
        return ContinuedState(state, seen_BS[:, -1:])

    def advance(self, state: ContinuedState, read_BT: Tensor) -> tuple[Tensor, ContinuedState]:
        read_BT = read_BT if state.last_B1 is None else state.last_B1
        vectors, after = self._model.advance(state.state, read_BT)
        return vectors, ContinuedState(after, None)

    def logits(self, vectors: Tensor) -> Tensor:
        return self._model.logits(vectors)
