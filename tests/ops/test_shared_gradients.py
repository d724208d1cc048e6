"""Gradients that a loop makes once are those that autograd makes step by step."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.shared_gradients import StepLinear

WEIGHT, BIAS = torch.randn(5, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
START, ROWS = torch.randn(3, 5, dtype=torch.float64), torch.randn(4, 3, 5, dtype=torch.float64)


def leaves() -> list[Tensor]:
    return [tensor.clone().requires_grad_() for tensor in (WEIGHT, BIAS, START, ROWS)]


def run(weight: Tensor, bias: Tensor, start: Tensor, rows: Tensor, *, is_deferred: bool) -> Tensor:
    given, own = StepLinear(weight), StepLinear(weight, bias)
    x = start
    for row in rows.unbind(0):
        if is_deferred:
            x = torch.tanh(given(x, row) + own(x))
        else:
            x = torch.tanh(F.linear(x, weight) + row + F.linear(x, weight, bias))
    return x


def test_a_loop_of_products() -> None:
    plain, deferred = leaves(), leaves()
    expected = torch.autograd.grad(run(*plain, is_deferred=False).square().sum(), plain)
    found = run(*deferred, is_deferred=True)
    for _ in range(2):  # a graph that is kept gives the same twice
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), deferred, retain_graph=True), expected)
    (of_start,) = torch.autograd.grad(found.square().sum(), deferred[2:3], retain_graph=True)
    torch.testing.assert_close(of_start, expected[2])
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), deferred), expected)


def test_constants_are_left_alone() -> None:
    weight, bias, start, rows = leaves()
    (of_start,) = torch.autograd.grad(run(WEIGHT, BIAS, start, ROWS, is_deferred=True).sum(), start)
    (expected,) = torch.autograd.grad(run(WEIGHT, BIAS, start, ROWS, is_deferred=False).sum(), start)
    torch.testing.assert_close(of_start, expected)
    with torch.no_grad():
        assert not run(weight, bias, start, rows, is_deferred=True).requires_grad


@pytest.mark.parametrize("goes_back", [False, True])
def test_memory_does_not_go_in_circles(goes_back: bool) -> None:
    weight, bias, start, _ = leaves()
    gc.collect()
    gc.disable()
    try:
        product = StepLinear(weight, bias)
        notes = weakref.ref(product._ledger)
        found = product(product(start)).sum()
        if goes_back:
            found.backward()
        del product, found
        assert notes() is None
    finally:
        gc.enable()
