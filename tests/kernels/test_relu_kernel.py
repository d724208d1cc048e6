"""A linear layer with its relu, interpreted: values and gradients are torch's."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from saccade.layers import feed_forward
from saccade.layers.feed_forward import FeedForward, linear_relu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("shape", "hidden"), [((7, 16), 300), ((2, 3, 20), 37), ((1, 5), 1), ((61, 8), 256)])
def test_it_is_as_exact_as_torch(shape: tuple[int, ...], hidden: int, dtype: torch.dtype) -> None:
    x, weight = (torch.randn(size).to(dtype).requires_grad_() for size in (shape, (hidden, shape[-1])))
    bias, grad = torch.randn(hidden, requires_grad=True), torch.randn(*shape[:-1], hidden).to(dtype)
    y = linear_relu(x, weight, bias)
    plain = F.relu(F.linear(x, weight, bias.to(dtype)))
    wide = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias.to(dtype))]
    exact = F.relu(F.linear(*wide))
    ours = [y, *torch.autograd.grad(y, (x, weight, bias), grad)]
    theirs = [plain, *torch.autograd.grad(plain, (x, weight, bias), grad)]
    for mine, other, true in zip(ours, theirs, [exact, *torch.autograd.grad(exact, wide, grad.double())], strict=True):
        bound = 3 * (other - true).abs().amax() + 8 * torch.finfo(dtype).eps * true.abs().amax()
        assert (mine - true).abs().amax() <= bound
    assert ours[3].dtype == torch.float32


def test_where_the_relu_is_zero_nothing_flows() -> None:
    x, weight, bias = torch.ones(2, 3), torch.eye(3), torch.tensor([-1.0, -2.0, 1.0], requires_grad=True)
    linear_relu(x, weight, bias).sum().backward()
    assert bias.grad is not None
    assert bias.grad.tolist() == [0.0, 0.0, 2.0]  # exactly zero counts as below


def test_only_a_relu_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(*tensors: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.ops.saccade.linear_relu(*tensors)

    monkeypatch.setattr(feed_forward, "linear_relu", counted)
    x = torch.randn(3, 4, 8)
    for activation in ("relu", "gelu", "swiglu"):
        layer = FeedForward(8, 16, activation=activation)
        plain = layer(x)
        with monkeypatch.context() as patch:
            patch.setattr(feed_forward, "is_fused", lambda _: True)
            torch.testing.assert_close(layer(x), plain)
    assert len(calls) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_operator_keeps_torchs_rules() -> None:
    given = tuple(torch.randn(size, requires_grad=True) for size in ((2, 3, 8), (5, 8), (5,)))
    torch.library.opcheck(linear_relu, given)
