"""One additive look in a Triton kernel: the plain equation in float64, in the interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade import attend, masks
from saccade.attention.scores import SCORES

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def inputs(batch: int, num_keys: int, width: int, value_width: int, dtype: torch.dtype) -> list[Tensor]:
    shapes = (batch, 1, 5), (batch, num_keys, width), (batch, num_keys, value_width)
    return [torch.randn(*shape).to(dtype) for shape in shapes]


def looked(
    tensors: list[Tensor], score: torch.nn.Module, length: Tensor | None, dtype: torch.dtype, backend: str
) -> list[Tensor]:
    query, memory, value = (x.detach().to(dtype) for x in tensors)
    query.requires_grad_()
    mask = None if length is None else masks.padding(length)
    frozen = score.to(dtype).requires_grad_(False)
    context = attend(query, None, value, memory=memory, score=frozen, mask=mask, backend=backend)
    (gradient,) = torch.autograd.grad((context.double() * torch.arange(1, 1 + value.shape[-1])).sum(), query)
    return [context.detach().double(), gradient.double()]


@pytest.mark.parametrize("dtype_name", DTYPES)
@pytest.mark.parametrize(("num_keys", "width", "value_width"), [(1, 3, 7), (17, 19, 23), (33, 600, 300)])
@pytest.mark.parametrize("is_padded", [False, True])
def test_equals_the_equation(dtype_name: str, num_keys: int, width: int, value_width: int, is_padded: bool) -> None:
    dtype, batch = DTYPES[dtype_name], 4
    score = SCORES["additive"](5, 5, hidden_width=width).to(dtype)  # type: ignore[call-arg]
    tensors = inputs(batch, num_keys, width, value_width, dtype)
    length = torch.tensor([num_keys, 1, (num_keys + 1) // 2, 0]) if is_padded else None
    exact = looked(tensors, score, length, torch.float64, "reference")
    plain = looked(tensors, score.to(dtype), length, dtype, "reference")
    ours = looked(tensors, score, length, dtype, "additive_step")
    for true, theirs, found in zip(exact, plain, ours, strict=True):
        bound = 3 * (theirs - true).abs().amax() + 8 * torch.finfo(dtype).eps * true.abs().amax()
        assert (found - true).abs().amax() <= bound
    if length is not None:
        assert (ours[0][3] == 0).all()
        assert (ours[1][1] == 0).all()  # who has one key looks at it whatever it asks
        assert (ours[1][3] == 0).all()


def test_weights_come_along_where_nobody_differentiates() -> None:
    score = SCORES["additive"](5, 5)
    query, memory, value = inputs(3, 7, 5, 2, torch.float32)
    options = {"memory": memory, "score": score, "mask": masks.padding(torch.tensor([7, 3, 1])), "return_weights": True}
    with torch.no_grad():
        _, ours = attend(query, None, value, backend="additive_step", **options)  # type: ignore[call-overload]
        _, plain = attend(query, None, value, backend="reference", **options)  # type: ignore[call-overload]
    torch.testing.assert_close(ours, plain)


def test_it_refuses_what_it_would_not_differentiate() -> None:
    score = SCORES["additive"](5, 5)
    query, memory, value = inputs(3, 7, 5, 2, torch.float32)
    with pytest.raises(ValueError, match="the keys, the values or v want a gradient"):
        attend(query, None, value, memory=memory, score=score, backend="additive_step")
    with pytest.raises(ValueError, match="not one query"):
        attend(query.expand(3, 2, 5), None, value, memory=memory, score=score, backend="additive_step")
