"""Runs stacked cells step by step: inputs known before the loop are projected at once, others in each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.layers.recurrent.gru_cell import gru_cell
from saccade.ops.aligned import linear
from saccade.ops.dropout import dropout
from saccade.ops.kernels.availability import is_fused
from saccade.ops.precision import compute_dtype, widen
from saccade.ops.shared_gradients import StepLinear


class LayerState(NamedTuple):
    """The state of a layer between steps: h, and c of an LSTM, [B, D]; and h in the narrower dtype of products."""

    state: tuple[Tensor, ...]
    read_BD: Tensor


States = list[LayerState]


@final
class UnrolledCells:
    """Cells that read [x_t; f_t], where x is known for all steps and f depends on the step before.

    W [x; f] = W_x x + W_f f: the first is one product for all steps, the weight's columns split in two.
    """

    def __init__(self, cells: nn.RNNBase, x_BTD: Tensor) -> None:
        width, (first, *others) = x_BTD.shape[-1], cells.all_weights
        x_GD, fed_GD = first[0].split([width, first[0].shape[1] - width], 1)
        self._cells, self._cell = cells, CELLS[cells.mode]
        self._dtype = compute_dtype(x_BTD)
        self._x_TBG = linear(x_BTD, x_GD, first[2]).unbind(1)
        inputs = [(fed_GD, None), *((weight, bias) for weight, _, bias, _ in others)]
        self._inputs = [StepLinear(weight, bias) for weight, bias in inputs]
        self._hiddens = [StepLinear(weight, bias) for _, weight, _, bias in cells.all_weights]

    def begin(self, hidden: tuple[Tensor, ...]) -> States:
        """Turn [L, B, D] into a loop's states; these stay wide, whatever dtype the products have."""
        wide, read = (widen(state).unbind(0) for state in hidden), hidden[0].to(self._dtype).unbind(0)
        return [LayerState(tuple(state), read_BD) for *state, read_BD in zip(*wide, read, strict=True)]

    def __call__(self, step: int, fed_BD: Tensor, states: States) -> tuple[Tensor, States]:
        """Return the top layer's output of a step, and the states after it."""
        output_BD, later = fed_BD, []
        for layer, (given, hidden, carried) in enumerate(zip(self._inputs, self._hiddens, states, strict=True)):
            if layer:
                output_BD = dropout(output_BD, self._cells.dropout, self._cells.training)
            known_BG, hidden_BG = None if layer else self._x_TBG[step], hidden(carried.read_BD)
            if self._cell is _gru and is_fused(hidden_BG) and hidden_BG.dtype != carried.state[0].dtype:
                wide_BD, read_BD = gru_cell(known_BG, given(output_BD), hidden_BG, *carried.state)
                later.append(LayerState((wide_BD,), read_BD))
            else:
                later.append(self._cell(given(output_BD, known_BG), hidden_BG, carried.state))
            output_BD = later[-1].read_BD
        return output_BD, later


def stack_states(states: States) -> tuple[Tensor, ...]:
    """Turn a loop's states into [L, B, D]."""
    return tuple(torch.stack(parts) for parts in zip(*(carried.state for carried in states), strict=True))


def _rnn(given_BG: Tensor, hidden_BG: Tensor, state: tuple[Tensor, ...]) -> LayerState:
    """h' = tanh(g + u), the plain recurrent cell."""
    (h_BD,) = state
    h_BD = torch.tanh(given_BG.to(h_BD.dtype) + hidden_BG.to(h_BD.dtype))
    return LayerState((h_BD,), h_BD)


def _gru(given_BG: Tensor, hidden_BG: Tensor, state: tuple[Tensor, ...]) -> LayerState:
    """r, z = sigmoid(g + u); h' = (1 - z) tanh(g_n + r u_n) + z h."""
    (h_BD,) = state
    given_BG, hidden_BG = given_BG.to(h_BD.dtype), hidden_BG.to(h_BD.dtype)
    if h_BD.device.type == "cuda":
        with torch.autocast("cuda", enabled=False):  # which would narrow the state
            h_BD = torch.ops.aten._thnn_fused_gru_cell(given_BG, hidden_BG, h_BD)[0]
            return LayerState((h_BD,), h_BD)
    sizes = [2 * h_BD.shape[-1], h_BD.shape[-1]]
    (given_B2D, new_BD), (hidden_B2D, old_BD) = given_BG.split(sizes, -1), hidden_BG.split(sizes, -1)
    r_BD, z_BD = torch.sigmoid(given_B2D + hidden_B2D).chunk(2, -1)
    h_BD = torch.lerp(torch.tanh(torch.addcmul(new_BD, r_BD, old_BD)), h_BD, z_BD)
    return LayerState((h_BD,), h_BD)


def _lstm(given_BG: Tensor, hidden_BG: Tensor, state: tuple[Tensor, ...]) -> LayerState:
    """i, f, o = sigmoid(g + u); c' = f c + i tanh(g_c + u_c); h' = o tanh(c')."""
    h_BD, c_BD = state
    given_BG, hidden_BG = given_BG.to(h_BD.dtype), hidden_BG.to(h_BD.dtype)
    if h_BD.device.type == "cuda":
        with torch.autocast("cuda", enabled=False):
            h_BD, c_BD, _ = torch.ops.aten._thnn_fused_lstm_cell(given_BG, hidden_BG, c_BD)
        return LayerState((h_BD, c_BD), h_BD)
    width = h_BD.shape[-1]
    gates_BG = given_BG + hidden_BG
    (i_BD, f_BD), o_BD = torch.sigmoid(gates_BG[:, : 2 * width]).chunk(2, -1), torch.sigmoid(gates_BG[:, 3 * width :])
    c_BD = torch.addcmul(f_BD * c_BD, i_BD, torch.tanh(gates_BG[:, 2 * width : 3 * width]))
    h_BD = o_BD * torch.tanh(c_BD)
    return LayerState((h_BD, c_BD), h_BD)


Cell = Callable[[Tensor, Tensor, tuple[Tensor, ...]], LayerState]
CELLS: dict[str, Cell] = {"RNN_TANH": _rnn, "GRU": _gru, "LSTM": _lstm}
