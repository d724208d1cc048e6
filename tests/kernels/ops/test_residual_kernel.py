"""Residual kernels, interpreted: as exact as torch's norm in every dtype and width; dropout is fair and repeatable."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.layers import residual as layer
from saccade.ops.lazy_norm import LazyNorm
from saccade.ops.residual import residual

SHAPES = [(7, 128), (2, 3, 40), (5, 37), (1, 3), (3, 515), (33, 16)]
SHARE, EPSILON = 0.3, 1e-5


def rows(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape) * scale + 0.3).to(dtype).requires_grad_()


def factors(shape: tuple[int, ...], seed: Tensor) -> Tensor:
    """What every number of an answer is multiplied by."""
    return residual(torch.ones(shape), None, None, None, seed, SHARE, 0.0)[0]


def spelled_out(
    answer: Tensor, x: Tensor | None, norm: layer.Norm | None, factor: Tensor | None, dtype: torch.dtype
) -> Tensor:
    total = answer if factor is None else answer * factor.to(answer.dtype)
    total = total if x is None else x + total
    if norm is None:
        return total
    weight, bias = norm.weight.to(dtype), norm.bias.to(dtype)
    return F.layer_norm(total.to(dtype), total.shape[-1:], weight, bias, EPSILON).to(answer.dtype)


def gradients(y: Tensor, inputs: list[Tensor], grad: Tensor) -> list[Tensor]:
    return [y.detach().double(), *(g.double() for g in torch.autograd.grad(y, inputs, grad.to(y.dtype)))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("adds", "drops", "norms"),
    [(True, True, True), (True, False, True), (False, False, True), (True, True, False), (False, True, False)],
)
def test_it_is_as_exact_as_torch(
    shape: tuple[int, ...], dtype: torch.dtype, adds: bool, drops: bool, norms: bool
) -> None:
    answer, x = rows(shape, dtype), rows(shape, dtype) if adds else None
    norm = layer.Norm(shape[-1], eps=EPSILON) if norms else None
    if norm is not None:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    seed = torch.tensor([(5 << 40) + 11]) if drops else None
    parameters = () if norm is None else (norm.weight, norm.bias)
    y, *_ = residual(answer, x, *(parameters or (None, None)), seed, SHARE, EPSILON)
    inputs = [tensor for tensor in (answer, x, *parameters) if tensor is not None]
    factor, grad = factors(shape, seed) if seed is not None else None, torch.randn(shape).to(dtype)
    ours = gradients(y, inputs, grad)
    plain = gradients(spelled_out(answer, x, norm, factor, torch.float32), inputs, grad)
    wide = [None if tensor is None else tensor.detach().double().requires_grad_() for tensor in (answer, x)]
    assert wide[0] is not None
    y = spelled_out(wide[0], wide[1], norm, None if factor is None else factor.double(), torch.float64)
    exact = gradients(y, [tensor for tensor in (*wide, *parameters) if tensor is not None], grad)
    for index, (true, mine, theirs) in enumerate(zip(exact, ours, plain, strict=True)):
        stored = dtype if adds or index < len(exact) - len(parameters) else torch.float32  # after a sum, u comes of y
        bound = (2 if index == 0 else 3) * (theirs - true).abs().amax() + 4 * torch.finfo(
            stored
        ).eps * true.abs().amax()
        assert (mine - true).abs().amax() <= bound, index


@pytest.mark.parametrize("bias", [0.0, 3.0])
def test_a_weight_of_zero_still_learns(bias: float) -> None:
    x, norm = rows((9, 24), torch.bfloat16), layer.Norm(24)
    with torch.no_grad():
        norm.weight[5], norm.weight[6], norm.bias[5:7] = 0.0, 1e-3, bias
    y, *_ = residual(x, None, norm.weight, norm.bias, None, 0.0, norm.eps)
    grad = torch.randn(9, 24)
    (ours,) = torch.autograd.grad(y, norm.weight, grad.bfloat16())
    (theirs,) = torch.autograd.grad(F.layer_norm(x.float(), (24,), norm.weight, norm.bias), norm.weight, grad)
    torch.testing.assert_close(ours, theirs, atol=0.1, rtol=0.02)


def test_dropout_is_fair_repeatable_and_each_seed_is_another() -> None:
    seeds = [torch.tensor([number]) for number in (1, 2, (1 << 32) + 1)]
    first, *others = (factors((64, 512), seed) for seed in seeds)
    kept = 1 - round(SHARE * 65536) / 65536
    torch.testing.assert_close(first.unique(), torch.tensor([0.0, 1 / kept]))
    deviation = (kept * (1 - kept)) ** 0.5
    for factor in (first, *others):
        assert abs(float((factor > 0).double().mean()) - kept) < 4 * deviation / factor.numel() ** 0.5
        assert ((factor > 0).double().mean(0) - kept).abs().amax() < 6 * deviation / 64**0.5  # no column is special
        assert ((factor > 0).double().mean(1) - kept).abs().amax() < 6 * deviation / 512**0.5
    assert torch.equal(first, factors((64, 512), seeds[0]))
    agreement = kept**2 + (1 - kept) ** 2
    for one, other in ((first, others[0]), (first, others[1]), (first[:-1], first[1:]), (first[:, :-1], first[:, 1:])):
        assert abs(float(((one > 0) == (other > 0)).double().mean()) - agreement) < 0.02


def test_the_answer_may_be_wider_than_the_stream_and_lie_anywhere() -> None:
    x, answer = rows((3, 5, 24), torch.bfloat16), rows((5, 3, 24)).detach().transpose(0, 1).requires_grad_()
    norm, seed = layer.Norm(24), torch.tensor([3])
    y, *_ = residual(answer, x, norm.weight, norm.bias, seed, SHARE, norm.eps)
    assert y.dtype == torch.bfloat16
    assert y.is_contiguous()
    grad_answer, grad_x = torch.autograd.grad(y.float().square().sum(), (answer, x))
    assert (grad_answer.dtype, grad_x.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(grad_answer, grad_x.float() * factors((3, 5, 24), seed), atol=1e-2, rtol=1e-2)
    grad = torch.autograd.grad(residual(answer, x, None, None, seed, SHARE, 0.0)[0].sum(), answer)[0]
    torch.testing.assert_close(grad, factors((3, 5, 24), seed), atol=0.01, rtol=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("share", [0.0, SHARE])
def test_the_sum_may_be_kept_beside_its_norm(share: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "is_fused", lambda _: True)
    answer, x, norm = rows((2, 5, 40), dtype), rows((2, 5, 40), dtype, 3.0), layer.Norm(40)
    torch.nn.init.normal_(norm.weight)
    leaves, factor = [answer, x, *norm.parameters()], torch.randn(2, 2, 5, 40).to(dtype)
    found = []
    for keeps in (True, False):
        torch.manual_seed(3)
        lazy = layer.LazySum(x, layer.DroppedOutput(answer, share))
        y = norm(lazy) if keeps else norm(lazy.total())
        assert not isinstance(y, LazyNorm)
        parts = [lazy.total(), y]
        found.append([*parts, *torch.autograd.grad(parts, leaves, list(factor))])
    for mine, other in zip(*found, strict=True):  # which rounds a gradient once more
        assert (mine - other).abs().amax() <= 2 * torch.finfo(dtype).eps * other.abs().amax()
    torch.manual_seed(3)
    torch.testing.assert_close(
        layer.LazySum(x, layer.DroppedOutput(answer, share)).end(norm), found[0][1], atol=0.05, rtol=0.02
    )


def test_no_rows() -> None:
    x, norm = rows((0, 8)), layer.Norm(8)
    y, *_ = residual(x, x, norm.weight, norm.bias, None, 0.0, 1e-5)
    y.sum().backward()
    assert y.shape == (0, 8)
    assert norm.weight.grad is not None
    assert (norm.weight.grad == 0).all()


def test_the_module_uses_it_and_otherwise_spells_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x, answer, norm = rows((3, 5, 24)), rows((3, 5, 24)), layer.Norm(24)
    plain = [norm(x), layer.add(x, answer, 0.0, norm), layer.add(x, answer, 0.0)]
    assert torch.equal(plain[0], F.layer_norm(x, (24,), norm.weight, norm.bias))
    assert torch.equal(plain[2], x + answer)
    monkeypatch.setattr(layer, "is_fused", lambda _: True)
    fused = [norm(x), layer.add(x, answer, 0.0, norm), layer.add(x, answer, 0.0)]
    for one, other in zip(plain, fused, strict=True):
        torch.testing.assert_close(one, other)
    torch.manual_seed(1)
    dropped = layer.add(x, answer, 0.5)
    torch.manual_seed(1)
    assert torch.equal(dropped, layer.add(x, answer, 0.5))
    assert not torch.equal(dropped, layer.add(x, answer, 0.5))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_operator_keeps_torchs_rules() -> None:
    x, answer, norm, seed = rows((3, 8)), rows((3, 8)), layer.Norm(8), torch.tensor([3])
    for given in (
        (answer, x, norm.weight, norm.bias, seed, SHARE, 1e-5),
        (answer, x, None, None, seed, SHARE, 0.0),
        (x, None, norm.weight, norm.bias, None, 0.0, 1e-5),
    ):
        torch.library.opcheck(residual, given)
