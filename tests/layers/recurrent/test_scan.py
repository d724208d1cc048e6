"""Recurrence over padded rows is the packed one, and step by step is torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from saccade.layers.recurrent.layers import CELLS, Recurrent
from saccade.layers.recurrent.scan import CellDropout, scan
from saccade.layers.recurrent.unrolled import stack_states
from saccade.ops.dropout import dropout, variational_dropout

X, LENGTH = torch.randn(4, 7, 6, dtype=torch.float64), torch.tensor([7, 2, 1, 5])


def build(cell: str, num_layers: int, is_both: bool = False, width: int = 6) -> nn.RNNBase:
    options: Any = {"batch_first": True, "bidirectional": is_both}
    made: Any = CELLS[cell]
    cells: nn.RNNBase = made(width, 5, num_layers, **options).double()
    return cells


def gradients(outputs: Tensor, hidden: tuple[Tensor, ...], leaves: list[Tensor]) -> tuple[Tensor, ...]:
    total = outputs.square().sum() + sum((i + 2) * state.sin().sum() for i, state in enumerate(hidden))
    return torch.autograd.grad(total, leaves)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("is_both", [False, True])
def test_padded_is_packed(cell: str, num_layers: int, is_both: bool) -> None:
    cells, x = build(cell, num_layers, is_both), X.clone().requires_grad_()
    packed, after = cells(pack_padded_sequence(x, LENGTH, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    hidden = after if isinstance(after, tuple) else (after,)
    outputs, states = scan(cells, x, length_B=LENGTH)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(states, hidden)
    leaves = [x, *cells.parameters()]
    torch.testing.assert_close(gradients(outputs, states, leaves), gradients(expected, hidden, leaves))


@pytest.mark.parametrize("cell", CELLS)
def test_whole_rows_go_on_from_a_state(cell: str) -> None:
    cells = build(cell, 2)
    first, state = scan(cells, X[:, :3])
    second, state = scan(cells, X[:, 3:], state)
    expected, after = cells(X)
    torch.testing.assert_close(torch.cat([first, second], 1), expected)
    torch.testing.assert_close(state, after if isinstance(after, tuple) else (after,))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_step_by_step_is_torchs_own(cell: str, num_layers: int) -> None:
    layers = Recurrent(6 + 3, 5, cell=cell, num_layers=num_layers).double()
    for weights in layers.cells.all_weights:
        nn.init.normal_(weights[3])
    fed = torch.randn(4, 7, 3, dtype=torch.float64, requires_grad=True)
    x = X.clone().requires_grad_()
    before = tuple(torch.randn(num_layers, 4, 5, dtype=torch.float64) for _ in range(1 + (cell == "lstm")))
    unrolled = layers.unroll(x)
    states, outputs = unrolled.begin(before), []
    for step in range(7):
        output, states = unrolled(step, fed[:, step], states)
        outputs.append(output)
    expected, after = layers(torch.cat([x, fed], -1), before)
    torch.testing.assert_close(torch.stack(outputs, 1), expected)
    torch.testing.assert_close(stack_states(states), after)
    leaves = [x, fed, *layers.parameters()]
    found = gradients(torch.stack(outputs, 1), stack_states(states), leaves)
    torch.testing.assert_close(found, gradients(expected, after, leaves))


def test_dropout_between_layers_is_drawn_at_every_step() -> None:
    layers = Recurrent(6, 5, num_layers=2, dropout=0.5).double()
    fed, before = torch.zeros(4, 0, dtype=torch.float64), (torch.zeros(2, 4, 5, dtype=torch.float64),)
    unrolled = layers.unroll(X)
    first, second = (unrolled(0, fed, unrolled.begin(before))[0] for _ in range(2))
    assert not torch.equal(first, second)
    layers.eval()
    first, second = (unrolled(0, fed, unrolled.begin(before))[0] for _ in range(2))
    torch.testing.assert_close(first, second)


def test_variational_dropout_takes_the_same_columns_at_all_steps() -> None:
    ones, total = torch.ones(50, 7, 40, dtype=torch.float64), torch.zeros(7, dtype=torch.float64)
    dropped = variational_dropout(ones, 0.25)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert not torch.equal(dropped[0], dropped[1])
    torch.testing.assert_close(dropped.mean((0, 2)), total + 1, atol=0.1, rtol=0)
    assert variational_dropout(ones, 0.25, training=False) is ones


@pytest.mark.parametrize("cell", CELLS)
def test_weights_from_state_to_state_are_dropped_once_for_all_steps(cell: str) -> None:
    layers = Recurrent(6, 5, cell=cell, dropping=CellDropout(weights=0.5)).double()
    weight_GD = layers.cells.all_weights[0][1]
    torch.manual_seed(3)
    found, _ = layers(X)
    torch.manual_seed(3)
    dropped_GD = dropout(weight_GD, 0.5)
    assert 0 < (dropped_GD == 0).sum() < dropped_GD.numel()
    plain = Recurrent(6, 5, cell=cell).double()
    plain.load_state_dict(layers.state_dict())
    with torch.no_grad():
        plain.cells.all_weights[0][1].copy_(dropped_GD)
    torch.testing.assert_close(found, plain(X)[0])
    found.sum().backward()
    assert weight_GD.grad is not None
    assert torch.equal(weight_GD.grad == 0, dropped_GD == 0)
    torch.testing.assert_close(layers.eval()(X), layers.cells(X) if cell == "lstm" else _as_tuple(layers.cells(X)))


def _as_tuple(given: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    return given[0], (given[1],)


def test_dropout_between_layers_may_be_variational() -> None:
    layers = Recurrent(6, 64, cell="rnn", num_layers=2, dropout=0.5, dropping=CellDropout(is_variational=True)).double()
    with torch.no_grad():  # the first layer writes the same at each step; the second hands on what it reads
        for part in layers.cells.parameters():
            part.zero_()
        layers.cells.all_weights[0][2].fill_(1.0)
        layers.cells.all_weights[1][0].copy_(torch.eye(64))
    outputs, _ = layers(X)
    assert torch.equal(outputs, outputs[:, :1].expand_as(outputs))
    assert 0 < (outputs == 0).double().mean() < 1
