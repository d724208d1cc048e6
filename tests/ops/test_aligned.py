"""Rows that zeros fill up for a device's products give what they would give alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from saccade.layers.recurrent import scan
from saccade.layers.recurrent.layers import CELLS
from saccade.ops import aligned

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture
def _five(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that wants multiples of 5."""
    for module in (aligned, scan):
        monkeypatch.setattr(module, "align_width", lambda width, *_: -(-width // 5) * 5)


def test_which_rows_grow() -> None:
    widths = [aligned.align_width(width, CUDA, torch.bfloat16) for width in (500, 504, 620, 1000)]
    assert widths == [512, 504, 640, 1000]
    assert [aligned.align_width(width, CUDA, torch.float32) for width in (500, 3)] == [500, 64]
    assert aligned.align_width(3, CPU, torch.bfloat16) == 3


@pytest.mark.usefixtures("_five")
def test_a_product() -> None:
    first, second, weight, bias = (
        torch.randn(*shape).double().requires_grad_() for shape in ((2, 3), (2, 4), (6, 7), (6,))
    )
    rows = aligned.join(first, second)
    assert rows.shape == (2, 10)
    found, expected = aligned.linear(rows, weight, bias), F.linear(torch.cat([first, second], -1), weight, bias)
    torch.testing.assert_close(found, expected)
    leaves = [first, second, weight, bias]
    ours, theirs = (torch.autograd.grad(answer.square().sum(), leaves) for answer in (found, expected))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(aligned.linear(first, weight[:, :3]), F.linear(first, weight[:, :3]))


@pytest.mark.usefixtures("_five")
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("length", [None, [7, 2, 1, 5]])
def test_units_that_stay_zero(cell: str, length: list[int] | None) -> None:
    made: Any = CELLS[cell]
    cells: nn.RNNBase = made(6, 4, 2, batch_first=True, bidirectional=True).double()
    x, length_B = torch.randn(4, 7, 6).double().requires_grad_(), None if length is None else torch.tensor(length)
    leaves = [x, *cells.parameters()]
    found, states = scan.scan(cells, x, length_B=length_B)
    given: Any = x
    if length_B is not None:
        given = nn.utils.rnn.pack_padded_sequence(x, length_B, batch_first=True, enforce_sorted=False)
    expected, after = cells(given)
    if length_B is not None:
        expected, _ = nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(states, after if isinstance(after, tuple) else (after,))
    ours, theirs = (torch.autograd.grad(answer.sin().sum(), leaves) for answer in (found, expected))
    torch.testing.assert_close(ours, theirs)
