"""Linear layers on a CUDA device, interpreted: values and gradients are torch's, with a relu or without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.layers import residual
from saccade.layers.feed_forward import FeedForward
from saccade.ops import linear as module
from saccade.ops.half_weights import HalfWeights
from saccade.ops.kernels import columns
from saccade.ops.kernels import narrow as narrow_kernel
from saccade.ops.known_gradients import note_sums, take_sums
from saccade.ops.linear import Linear, fused_linear, linear

SHAPES: list[Any] = [((7, 16), [300]), ((2, 3, 20), [37, 5]), ((1, 5), [1]), ((61, 8), [256, 64, 64])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("shape", "widths"), SHAPES)
def test_it_is_as_exact_as_torch(shape: tuple[int, ...], widths: list[int], dtype: torch.dtype, relu: bool) -> None:
    x, grad = torch.randn(shape).to(dtype).requires_grad_(), torch.randn(*shape[:-1], sum(widths)).to(dtype)
    weights = [narrow(width, shape[-1]) for width in widths]
    biases = [narrow(width) for width in widths]
    leaves = [x, *weights, *biases]

    def plain(wide: torch.dtype) -> list[Tensor]:
        copies = [leaf.detach().to(dtype).to(wide).requires_grad_() for leaf in leaves]
        y = F.linear(copies[0], *(torch.cat(copies[1:][part]) for part in _halves(len(widths))))
        y = F.relu(y) if relu else y
        return [y, *torch.autograd.grad(y, copies, grad.to(wide))]

    y, _ = fused_linear(x, weights, biases, relu, [])
    ours = [y, *torch.autograd.grad(y, leaves, grad)]
    for mine, other, true in zip(ours, plain(dtype), plain(torch.float64), strict=True):
        bound = 3 * (other - true).abs().amax() + 8 * torch.finfo(dtype).eps * true.abs().amax()
        assert (mine - true).abs().amax() <= bound
    assert [found.dtype for found in ours] == [dtype, *(leaf.dtype for leaf in leaves)]


def narrow(*shape: int) -> Tensor:
    """In float32, of numbers that bfloat16 has too: interpreted, a kernel doesn't round but cuts bits off."""
    return torch.randn(shape).bfloat16().float().requires_grad_()


def _halves(count: int) -> tuple[slice, slice]:
    return slice(count), slice(count, 2 * count)


@pytest.mark.parametrize("relu", [True, False])
def test_a_bias_may_be_missing(relu: bool) -> None:
    x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    y, plain = fused_linear(x, [weight], [], relu, [])[0], F.linear(x, weight)
    plain = F.relu(plain) if relu else plain
    torch.testing.assert_close(y, plain)
    for mine, other in zip(*(torch.autograd.grad(z.square().sum(), (x, weight)) for z in (y, plain)), strict=True):
        torch.testing.assert_close(mine, other)


def test_where_the_relu_is_zero_nothing_flows() -> None:
    x, weight, bias = torch.ones(2, 3), torch.eye(3), torch.tensor([-1.0, -2.0, 1.0], requires_grad=True)
    fused_linear(x, [weight], [bias], True, [])[0].sum().backward()
    assert bias.grad is not None
    assert bias.grad.tolist() == [0.0, 0.0, 2.0]  # exactly zero counts as below


@pytest.mark.parametrize("widths", [[64], [5, 300, 7]])
def test_all_parts_are_narrowed_at_once(widths: list[int]) -> None:
    from saccade.ops.kernels.narrow import join_narrow

    weights, biases = [torch.randn(width, 37) for width in widths], [torch.randn(width) for width in widths]
    weight, bias = join_narrow(weights, biases, torch.bfloat16)
    assert bias is not None
    for found, wanted in ((weight, torch.cat(weights)), (bias, torch.cat(biases))):
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), wanted, atol=0.0, rtol=2.0**-7)  # interpreted, it cuts bits off
    without, none = join_narrow(weights, [], torch.bfloat16)
    assert torch.equal(without, weight)
    assert none is None


def test_sums_over_many_rows_are_the_same_every_time() -> None:
    from saccade.ops.kernels.columns import ColumnBlocks, column_sums, sum_rows

    x = torch.randn(1500, 70)
    for blocks in (ColumnBlocks(32, 128, 4), ColumnBlocks(4, 16, 4, waves=40)):
        found = column_sums(x, blocks)
        torch.testing.assert_close(found, x.double().sum(0).float(), atol=1e-4, rtol=1e-5)
        assert torch.equal(found, column_sums(x, blocks))
    assert not column_sums(x[:0]).any()
    assert torch.equal(sum_rows(x[:1]), x[0])


def test_only_a_layer_that_may_learn_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    def counted(*given: Any) -> Any:
        calls.append(given[3])
        return torch.ops.saccade.linear(*given)

    monkeypatch.setattr(module, "fused_linear", counted)
    x, layer = torch.randn(3, 4, 8), Linear(8, 8)
    plain = layer(x)
    assert not calls
    monkeypatch.setattr(module, "is_fused", lambda _: True)
    torch.testing.assert_close(layer(x), plain)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), plain)
    assert calls == [False]


@pytest.mark.parametrize(
    ("activation", "relus"), [("relu", [True, False]), ("gelu", [False] * 2), ("swiglu", [False] * 3)]
)
def test_a_network_of_two_layers(activation: str, relus: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    def counted(*given: Any, relu: bool = False) -> Tensor:
        calls.append(relu)
        return linear(*given, relu=relu)

    monkeypatch.setattr(module, "linear", counted)
    x, layer = torch.randn(3, 4, 8), FeedForward(8, 16, activation=activation)
    plain = layer(x)
    monkeypatch.setattr(module, "is_fused", lambda _: True)
    torch.testing.assert_close(layer(x), plain)
    assert calls == relus * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("widths", [[5], [5, 3]])
def test_the_operator_keeps_torchs_rules(widths: list[int]) -> None:
    weights = [torch.randn(width, 8, requires_grad=True) for width in widths]
    biases = [torch.randn(width, requires_grad=True) for width in widths]
    for relu in (True, False):
        x, narrow = torch.randn(2, 3, 8, requires_grad=True), [torch.randn(sum(widths), 8), torch.randn(sum(widths))]
        for given in ([], narrow):
            torch.library.opcheck(fused_linear, (x, weights, biases, relu, given))


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_bias_is_summed_where_its_gradient_is_made(
    share: float, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residual, "is_fused", lambda _: True)
    x, weight, bias, norm = torch.randn(9, 24), narrow(24, 24), narrow(24), residual.Norm(24)
    found: list[tuple[Tensor, ...]] = []
    sums: list[Tensor] = []

    def summed(grad: Tensor) -> Tensor:
        sums.append(grad)
        return grad.sum(0)

    monkeypatch.setattr(columns, "column_sums", summed)
    for is_known in (True, False):
        torch.manual_seed(3)
        answer, _ = fused_linear(x, [weight], [bias], False, [])
        lazy = residual.LazySum(x, residual.DroppedOutput(answer if is_known else answer * 1.0, share))
        y = torch.add(norm(lazy), lazy.total()) if keeps else lazy.end(norm)
        found.append(torch.autograd.grad(y, (weight, bias), torch.ones_like(y).cumsum(0)))
        assert len(sums) == (not is_known)
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other)


def test_a_gradient_that_was_changed_is_summed_again() -> None:
    grad = torch.ones(3, 2)
    note_sums(grad, grad.sum(0))
    known = take_sums(grad)
    assert known is not None
    assert torch.equal(known, torch.full((2,), 3.0))
    assert take_sums(grad) is None  # two biases must not have one gradient
    note_sums(grad, known)
    grad += 1
    assert take_sums(grad) is None
    assert take_sums(torch.ones(3, 2)) is None


@pytest.mark.parametrize("width", [16, 5])
def test_a_pass_begins_with_a_copy_of_all_weights(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_fused", lambda _: True)
    monkeypatch.setattr(module, "compute_dtype", lambda _: torch.bfloat16)
    weights, biases = [narrow(3, width), narrow(4, width)], [narrow(3), narrow(4)]
    leaves, half_weights = [*weights, *biases], HalfWeights()
    x, singly, found = torch.randn(6, width), [], []
    alone = narrow_kernel.join_narrow

    def counted(*given: Any) -> Any:
        singly.append(1)
        return alone(*given)

    monkeypatch.setattr(narrow_kernel, "join_narrow", counted)
    for number in range(3):
        with half_weights:
            y = linear(x, weights, biases).float() @ torch.ones(7, 1) + linear(x, weights[:1], []).float().sum(1, True)
        found.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
        assert len(singly) == 2  # in the first pass
        if number:
            for mine, other in zip(found[number], found[0], strict=True):
                assert torch.equal(mine, other)
    with torch.no_grad():
        weights[0] += 1
    with half_weights:
        linear(x, weights, biases)
        later = linear(x, weights[:1], [])
    torch.testing.assert_close(later, F.linear(x.bfloat16(), weights[0].bfloat16()), atol=0.1, rtol=0.05)
    assert linear(x, weights[:1], []).shape == (6, 3)  # outside of a pass
    assert len(singly) == 3
