"""Two layers with a relu between them on a CUDA device, interpreted: values and gradients are torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.layers.feed_forward import FeedForward
from saccade.ops import relu_network as module
from saccade.ops.half_weights import HalfWeights
from saccade.ops.kernels import masked_product as kernel
from saccade.ops.known_gradients import note_sums
from saccade.ops.relu_network import fused_network


def narrow(*shape: int) -> Tensor:
    """In float32, of numbers that bfloat16 has too: interpreted, a kernel doesn't round but cuts bits off."""
    return torch.randn(shape).bfloat16().float().requires_grad_()


@pytest.mark.usefixtures("widened_products")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("num_rows", "depth", "width"), [(300, 136, 264), (1, 8, 8), (128, 64, 128), (40, 16, 136)])
def test_the_product_is_masked_and_summed_on_its_way(num_rows: int, depth: int, width: int, dtype: torch.dtype) -> None:
    grad, weight = torch.randn(num_rows, depth).to(dtype), torch.randn(depth, width).to(dtype)
    hidden = torch.randn(num_rows, width).relu().to(dtype)
    exact = torch.where(hidden > 0, grad.double() @ weight.double(), 0.0)
    for blocks in (
        kernel.BLOCKS,
        kernel.WIDE,
        kernel.ProductBlocks(rows=16, columns=32, step=16, group=2, warps=4, stages=2),
    ):
        found, sums = kernel.launch(grad, weight, hidden, blocks)
        torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=2.0**-7)  # interpreted, it cuts bits off
        torch.testing.assert_close(sums.double(), exact.sum(0), atol=1e-3, rtol=1e-5)
        assert (found[hidden == 0] == 0).all()


@pytest.mark.usefixtures("widened_products")
def test_what_cannot_be_copied_by_tiles_is_multiplied_first(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[torch.Size] = []
    launched = kernel.launch

    def counted(grad: Tensor, *others: Any) -> Any:
        launches.append(grad.shape)
        return launched(grad, *others)

    monkeypatch.setattr(kernel, "launch", counted)

    def ask(num_rows: int, depth: int, width: int, dtype: torch.dtype = torch.bfloat16, first: int = 0) -> None:
        grad = torch.ones(num_rows * depth + first, dtype=dtype)[first:].view(num_rows, depth)
        weight, hidden = torch.ones(depth, width, dtype=dtype), torch.ones(num_rows, width, dtype=dtype)
        found, sums = kernel.masked_product(grad, weight, hidden)
        assert (found == depth).all()
        assert (sums == depth * num_rows).all()

    ask(5, 8, 16)
    assert not launches
    monkeypatch.setattr(kernel, "is_hopper", lambda _: True)
    ask(5, 8, 16)
    assert launches == [(5, 8)]
    ask(5, 9, 16)
    ask(5, 8, 12)
    ask(5, 8, 16, torch.float32)
    ask(0, 8, 16)
    ask(5, 8, 16, first=1)
    assert launches == [(5, 8)]


@pytest.mark.usefixtures("widened_products")
@pytest.mark.parametrize("is_hopper", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("shape", "hidden"), [((7, 16), 304), ((2, 3, 20), 37), ((1, 8), 8), ((130, 8), 136)])
def test_it_is_as_exact_as_torch(
    shape: tuple[int, ...], hidden: int, dtype: torch.dtype, is_hopper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "is_hopper", lambda _: is_hopper)
    x, grad = torch.randn(shape).to(dtype).requires_grad_(), torch.randn(shape).to(dtype)
    layers = [narrow(hidden, shape[-1]), narrow(hidden), narrow(shape[-1], hidden), narrow(shape[-1])]
    leaves = [x, *layers]

    def plain(wide: torch.dtype) -> list[Tensor]:
        copies = [leaf.detach().to(dtype).to(wide).requires_grad_() for leaf in leaves]
        y = F.linear(F.relu(F.linear(*copies[:3])), *copies[3:])
        return [y, *torch.autograd.grad(y, copies, grad.to(wide))]

    y = fused_network(x, layers[:2], layers[2:], [], [])[0]
    ours = [y, *torch.autograd.grad(y, leaves, grad)]
    for mine, other, true in zip(ours, plain(dtype), plain(torch.float64), strict=True):
        bound = 3 * (other - true).abs().amax() + 8 * torch.finfo(dtype).eps * true.abs().amax()
        assert (mine - true).abs().amax() <= bound
    assert [found.dtype for found in ours] == [dtype, *(leaf.dtype for leaf in leaves)]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_layer_that_may_learn_uses_it(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Size] = []

    def counted(x: Tensor, *given: Any) -> Any:
        calls.append(x.shape)
        return torch.ops.saccade.relu_network(x, *given)

    monkeypatch.setattr(module, "fused_network", counted)
    x, layer = torch.randn(3, 4, 8), FeedForward(8, 16, dropout=share)
    plain = layer.eval()(x)
    assert not calls
    monkeypatch.setattr(module, "is_fused", lambda _: True)
    torch.testing.assert_close(layer(x), plain)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), plain)
    assert len(calls) == 1
    layer.train()(x)
    assert len(calls) == (1 if share else 2)


def test_a_pass_begins_with_a_copy_of_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_fused", lambda _: True)
    monkeypatch.setattr(module, "compute_dtype", lambda _: torch.bfloat16)
    x, layer, half_weights, found = torch.randn(6, 16), FeedForward(16, 24), HalfWeights(), []
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(parameter.bfloat16())
    for _ in range(3):
        with half_weights:
            y = layer(x)
        found.append([y, *torch.autograd.grad(y.float().square().sum(), [*layer.parameters()])])
    for mine, other in zip(found[2], found[0], strict=True):
        assert torch.equal(mine, other)


def test_a_sum_that_is_known_is_taken() -> None:
    layers = [narrow(24, 8), narrow(24), narrow(8, 24), narrow(8)]
    y = fused_network(torch.randn(5, 8), layers[:2], layers[2:], [], [])[0]
    grad = torch.randn(5, 8)
    note_sums(grad, torch.full((8,), 3.0))
    assert (torch.autograd.grad(y, layers, grad)[3] == 3).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_operator_keeps_torchs_rules() -> None:
    x, inner, outer = torch.randn(2, 3, 8, requires_grad=True), [narrow(5, 8), narrow(5)], [narrow(8, 5), narrow(8)]
    copies = [[tensor.detach().clone() for tensor in layer] for layer in (inner, outer)]
    torch.library.opcheck(fused_network, (x, inner, outer, *copies))
    torch.library.opcheck(fused_network, (x, inner, outer, [], []))
