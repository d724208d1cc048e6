"""Recurrent layers over torch's fused ones: padding changes nothing, and states can be reordered."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from saccade.layers.recurrent.scan import PLAIN, CellDropout, Hidden, reverse_steps, scan
from saccade.layers.recurrent.unrolled import UnrolledCells

CELLS: dict[str, type[nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
DIRECTIONS = ("forward", "backward", "both")


@final
class Recurrent(nn.Module):
    """Stacked cells: h_t = tanh(W x_t + U h_t-1 + b), or a GRU (Cho 2014), or an LSTM (Hochreiter 1997)."""

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        cell: str = "gru",
        num_layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dropping: CellDropout = PLAIN,
    ) -> None:
        super().__init__()
        if cell not in CELLS:
            raise ValueError(f"cell: {cell!r} given; allowed: {', '.join(CELLS)}")
        between = dropout if num_layers > 1 else 0.0
        options: dict[str, Any] = {"batch_first": True, "bidirectional": bidirectional, "dropout": between}
        self.cells = CELLS[cell](input_width, width, num_layers, **options)  # type: ignore[arg-type]
        self.dropping = dropping
        self._initialise(width, cell)

    def forward(self, x: Any, hidden: Hidden | None = None) -> tuple[Any, Hidden]:
        """Return the top layer's outputs for steps [B, T, D] (or packed ones), and the state after the last step."""
        drops_more = self.training and self.dropping != PLAIN
        if isinstance(x, Tensor) and (drops_more or not can_pack(x)):
            return scan(self.cells, x, hidden, dropping=self.dropping)
        given = hidden if hidden is None or len(hidden) > 1 else hidden[0]
        outputs, after = self.cells(x, given)
        return outputs, after if isinstance(after, tuple) else (after,)

    def unroll(self, x_BTD: Tensor) -> UnrolledCells:
        """Return the cells for a loop in which each step reads x_t and a value that depends on the step before."""
        return UnrolledCells(self.cells, x_BTD)

    @torch.no_grad()
    def _initialise(self, width: int, cell: str) -> None:
        """Start orthogonal from state to state, Xavier from input; an LSTM starts by remembering (Jozefowicz 2015)."""
        for name, parameter in self.cells.named_parameters():
            if name.startswith("weight_hh"):
                for gate in parameter.split(width):
                    nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(parameter)
            else:
                parameter.zero_()
                if cell == "lstm" and name.startswith("bias_ih"):
                    parameter[width : 2 * width] = 1.0


def can_pack(x: Tensor) -> bool:
    """Return True on a CPU in full precision, where torch's own packed recurrence is fastest."""
    return x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


@final
class RecurrentEncoder(nn.Module):
    """Reads a source from its beginning, from its end (Sutskever 2014, section 3.3), or both (Bahdanau 2015, 3.2).

    The output always has `width` columns: with both, each direction has half of them.
    """

    def __init__(
        self, input_width: int, width: int, *, direction: str = "both", cell: str, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        if direction not in DIRECTIONS:
            raise ValueError(f"direction: {direction!r} given; allowed: {', '.join(DIRECTIONS)}")
        if direction == "both" and width % 2:
            raise ValueError(f"width: {width} given; two directions need an even width")
        both = direction == "both"
        own = width // 2 if both else width
        self.from_the_end = direction == "backward"
        self.layers = Recurrent(input_width, own, cell=cell, num_layers=num_layers, dropout=dropout, bidirectional=both)

    def forward(self, x_BSD: Tensor, length_B: Tensor) -> tuple[Tensor, Hidden]:
        """Return a vector for every step [B, S, D], 0 behind the length, and the last state of each layer [L, B, D]."""
        if self.from_the_end:
            x_BSD = reverse_steps(x_BSD, length_B)
        if can_pack(x_BSD):
            memory_BSD, hidden = self._run_packed(x_BSD, length_B)
        else:
            memory_BSD, hidden = scan(self.layers.cells, x_BSD, length_B=length_B)
        if self.from_the_end:
            memory_BSD = reverse_steps(memory_BSD, length_B)
        return memory_BSD, tuple(self._join_directions(state) for state in hidden)

    def _run_packed(self, x_BSD: Tensor, length_B: Tensor) -> tuple[Tensor, Hidden]:
        """Run without work for padding: on a CPU, lengths are at hand."""
        packed = pack_padded_sequence(x_BSD, length_B, batch_first=True, enforce_sorted=False)
        outputs, hidden = self.layers(packed)
        memory_BSD, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x_BSD.shape[1])
        return memory_BSD, hidden

    def _join_directions(self, state: Tensor) -> Tensor:
        """Put the directions of a layer side by side: [L * 2, B, D / 2] to [L, B, D]."""
        if not self.layers.cells.bidirectional:
            return state
        return torch.cat([state[0::2], state[1::2]], -1)
