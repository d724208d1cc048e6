"""Runs padded sequences through stacked cells on accelerators: nothing is packed, and lengths stay on the device.

Each layer and direction is one call of torch's (on CUDA: cuDNN's) recurrence over padded rows. The backward direction
starts at each row's own end, because its real steps are reversed; padding stands behind them and never reaches a real
state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.ops.aligned import align_width, pad_width
from saccade.ops.dropout import dropout, variational_dropout

Hidden = tuple[Tensor, ...]  # h, and c of an LSTM; each [L, B, D]
CLOSED = 1e4  # the sigmoid of a gate this far from 0 is exactly 0 or 1
FLAGS = 8  # columns, so that rows stay aligned


class CellDropout(NamedTuple):
    """Dropout inside an RNN's cells, besides that of entries between layers."""

    is_variational: bool = False  # between layers, the same columns at all steps
    weights: float = 0.0  # a share of the weights from state to state, once for all steps (Merity 2018, section 2)


PLAIN = CellDropout()


def scan(
    cells: nn.RNNBase,
    x_BSD: Tensor,
    hidden: Hidden | None = None,
    length_B: Tensor | None = None,
    dropping: CellDropout = PLAIN,
) -> tuple[Tensor, Hidden]:
    """Return the top layer's outputs, 0 behind the length, and the states after each row's last step, [L, B, D]."""
    drop = variational_dropout if dropping.is_variational else dropout
    states: list[Sequence[Tensor]] = []
    for layer in range(cells.num_layers):
        x_BSD = pad_width(drop(x_BSD, cells.dropout, cells.training) if layer else x_BSD)
        outputs = []
        for is_turned in (False, True) if cells.bidirectional else (False,):
            place = len(states)
            before = None if hidden is None else tuple(state[place : place + 1] for state in hidden)
            given_BSD = _reverse(x_BSD, length_B) if is_turned else x_BSD
            from_input, from_state, *biases = cells.all_weights[place]
            weights = [from_input, dropout(from_state, dropping.weights, cells.training), *biases]
            output_BSD, after = _scan(cells, weights, given_BSD, before, length_B)
            outputs.append(_reverse(output_BSD, length_B) if is_turned else output_BSD)
            states.append(after)
        x_BSD = torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]
    if length_B is not None:
        x_BSD = x_BSD * _real(x_BSD, length_B)
    return x_BSD, tuple(torch.cat(parts) for parts in zip(*states, strict=True))


def reverse_steps(x_BSD: Tensor, length_B: Tensor) -> Tensor:
    """Reverse each row's real steps; padding stays where it is."""
    step_S = torch.arange(x_BSD.shape[1], device=x_BSD.device)
    from_end_BS = length_B[:, None] - 1 - step_S
    first_B1 = torch.arange(len(x_BSD), device=x_BSD.device).unsqueeze(1) * x_BSD.shape[1]
    place_BS = first_B1 + torch.where(from_end_BS >= 0, from_end_BS, step_S)
    return cast(Tensor, SwapSteps.apply(x_BSD, place_BS))


@final
class SwapSteps(torch.autograd.Function):
    """Swaps steps in pairs. Done twice it changes nothing, so its gradient is swapped the same way."""

    @staticmethod
    def forward(ctx: Any, x_BSD: Tensor, place_BS: Tensor) -> Tensor:
        ctx.save_for_backward(place_BS)
        return x_BSD.flatten(0, 1)[place_BS]

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        return cast(Tensor, SwapSteps.apply(grad[0], *ctx.saved_tensors)), None


def _reverse(x_BSD: Tensor, length_B: Tensor | None) -> Tensor:
    return x_BSD.flip(1) if length_B is None else reverse_steps(x_BSD, length_B)


def _real(x_BSD: Tensor, length_B: Tensor) -> Tensor:
    """Return 1 for a step, 0 for padding, [B, S, 1]."""
    step_S = torch.arange(x_BSD.shape[1], device=x_BSD.device)
    return (step_S < length_B[:, None]).to(x_BSD.dtype).unsqueeze(-1)


def _scan(
    cells: nn.RNNBase, weights: Sequence[Tensor], x_BSD: Tensor, before: Hidden | None, length_B: Tensor | None
) -> tuple[Tensor, Hidden]:
    """Run one layer in one direction: return its outputs, and its states [1, B, D] after each row's last step.

    It runs in the dtype of x; under autocast, cuDNN left to itself would take float16. More units, whose weights are
    all zeros, stay 0 in every kind of cell: they make the state as wide as products want it.
    """
    dtype, width = x_BSD.dtype, cells.hidden_size
    more = align_width(width, x_BSD.device, dtype) - width
    is_lstm = cells.mode == "LSTM"
    weights = [
        _pad_weight(weight, width, x_BSD.shape[-1] if i == 0 else width + more, more)
        for i, weight in enumerate(weights)
    ]
    if is_lstm and length_B is not None:
        x_BSD, weights = _keep_state(x_BSD, weights, length_B)
    if before is None:
        before = (x_BSD.new_zeros(1, len(x_BSD), width),) * (2 if is_lstm else 1)
    narrow = [F.pad(state.to(dtype), (0, more)).contiguous() for state in before]
    flat = torch.cat([weight.flatten() for weight in weights]).to(dtype)  # one piece of memory, as cuDNN wants it
    sizes = [weight.numel() for weight in weights]
    parts = [part.view_as(weight) for part, weight in zip(flat.split(sizes), weights, strict=True)]
    options = (parts, True, 1, 0.0, cells.training, False, True)
    with torch.autocast(x_BSD.device.type, enabled=False):
        if is_lstm:
            output_BSD, *after = torch.lstm(x_BSD, narrow, *options)
        else:
            run = torch.gru if cells.mode == "GRU" else torch.rnn_tanh
            output_BSD, *after = run(x_BSD, narrow[0], *options)
    output_BSD, *after = (tensor[..., :width] for tensor in (output_BSD, *after))
    if length_B is not None:  # what was returned is the state after the padding
        last_B11 = (length_B - 1)[:, None, None]
        after[0] = output_BSD.take_along_dim(last_B11, 1).transpose(0, 1)
    return output_BSD, tuple(after)


def _pad_weight(weight: Tensor, width: int, input_width: int, more: int) -> Tensor:
    """Give each gate of [G, D] or [G] more rows of zeros, and columns of zeros up to the input's width."""
    behind = (0, input_width - weight.shape[-1]) if weight.dim() > 1 else ()
    if not more and not any(behind):
        return weight
    return F.pad(weight.unflatten(0, (-1, width)), (*behind, 0, more)).flatten(0, 1)


def _keep_state(x_BSD: Tensor, weights: Sequence[Tensor], length_B: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    """Make an LSTM keep its c over padding: a flag there closes the input gate and opens the forget gate."""
    weight_GD, *others = weights
    flag_BS8 = F.pad(1 - _real(x_BSD, length_B), (0, FLAGS - 1))
    gate_4 = weight_GD.new_zeros(4)
    gate_4[0].fill_(-CLOSED)  # in torch's order: input, forget, cell, output
    gate_4[1].fill_(CLOSED)
    column_G1 = gate_4.repeat_interleave(len(weight_GD) // 4).unsqueeze(-1)
    flagged_GD = torch.cat([weight_GD, F.pad(column_G1, (0, FLAGS - 1))], -1)
    return torch.cat([x_BSD, flag_BS8.to(x_BSD.dtype)], -1), [flagged_GD, *others]
