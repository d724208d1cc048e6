"""An operator takes the fields of a NamedTuple one by one, and its functions get them together."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from saccade.ops.operator import operator, restore, save


class ShiftInputs(NamedTuple):
    x: Tensor
    shift: Tensor | None
    factor: float


def shapes(given: ShiftInputs, times: int) -> Tensor:
    del times
    return torch.empty_like(given.x)


@operator("saccade_tests::shift", shapes=shapes)
def shift(given: ShiftInputs, times: int) -> Tensor:
    y = given.x * given.factor**times
    return y if given.shift is None else y + given.shift


def keep(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    save(ctx, *inputs)


def differentiate(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    *fields, times = restore(ctx)
    given = ShiftInputs(*fields)
    return grad * given.factor**times, None if given.shift is None else grad, None, None


shift.register_autograd(differentiate, setup_context=keep)


def test_its_arguments_are_the_fields() -> None:
    x, more = (torch.randn(3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    torch.testing.assert_close(shift(*ShiftInputs(x, more, 2.0), 3), 8 * x + more)
    torch.testing.assert_close(shift(x, None, 2.0, 1), 2 * x)
    assert "(Tensor x, Tensor? shift, float factor, SymInt times) -> Tensor" in str(shift._schema)


def test_it_keeps_torchs_rules() -> None:
    for more in (torch.randn(3, 2, requires_grad=True), None):
        torch.library.opcheck(shift, (torch.randn(3, 2, requires_grad=True), more, 0.5, 2))
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: shift(y, None, 0.5, 2), x)
