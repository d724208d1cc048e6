"""The additive kernel: exact whatever the range, and never a T x S x D tensor."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from saccade import attend
from saccade.attention.kernels.additive import tiles
from saccade.attention.kernels.additive.tiles import additive_score
from saccade.attention.scores import Additive
from saccade.training.memory import peak_memory


def plain(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    hidden = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))
    return (hidden @ v[:, None, :, None]).squeeze(-1)


@pytest.mark.parametrize("tile", [1, 64, 1 << 19])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (3, 17, 300, 2), (5, 1, 11, 13)])
def test_any_tiling_gives_the_score_and_its_gradients(
    tile: int, shape: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tiles.TILE_ELEMENTS, "cpu", tile)
    batch, num_queries, num_keys, width = shape
    inputs = [
        torch.randn(*size, dtype=torch.float64, requires_grad=True)
        for size in ((batch, num_queries, width), (batch, num_keys, width), (batch, width))
    ]
    ours, theirs = additive_score(*inputs), plain(*inputs)
    torch.testing.assert_close(ours, theirs)
    direction = torch.randn_like(theirs)
    for one, other in zip(
        torch.autograd.grad(ours, inputs, direction), torch.autograd.grad(theirs, inputs, direction), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("size", [1e-4, 1.0, 43.0, 44.0, 60.0, 1e4, 1e30])
def test_no_range_gives_a_wrong_answer(size: float) -> None:
    # queries near +size and keys near -size, so that their sums are where tanh bends
    query = (size + torch.randn(1, 5, 7)).requires_grad_()
    key = (-size + torch.randn(1, 11, 7)).requires_grad_()
    v = torch.randn(1, 7)
    exact = plain(query.double(), key.double(), v.double())
    ours, theirs = additive_score(query, key, v), plain(query, key, v)
    assert (ours - exact).abs().max() <= 2 * (theirs - exact).abs().max() + 2e-6
    gradients = torch.autograd.grad(ours.sum(), (query, key))
    expected = torch.autograd.grad(theirs.sum(), (query, key))
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_the_guard_is_what_keeps_large_arguments_right() -> None:
    far = torch.full((1, 2, 1), 60.0)
    assert not tiles._separate(far, -far).separated
    assert tiles._separate(far / 2, far / 2).separated
    assert math.exp(2 * 60.0) > torch.finfo(torch.float32).max


def test_one_query_is_as_exact_as_the_plain_equation() -> None:
    query, key, v = torch.randn(16, 1, 256), torch.randn(16, 30, 256), torch.randn(16, 256)
    exact = plain(query.double(), key.double(), v.double())
    ours, theirs = ((made - exact).square().mean() for made in (additive_score(query, key, v), plain(query, key, v)))
    assert ours <= 2 * theirs


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinities_and_nan_propagate_as_in_the_equation(value: float) -> None:
    query, key, v = torch.randn(1, 3, 5), torch.randn(1, 4, 5), torch.randn(1, 5)
    query[0, 1, 2] = value
    torch.testing.assert_close(additive_score(query, key, v), plain(query, key, v), equal_nan=True)


def test_the_full_tensor_is_never_held() -> None:
    score = Additive(256, 256)
    inputs = [torch.randn(512, 256, requires_grad=True) for _ in range(3)]

    def both_ways() -> None:
        attend(*inputs, score=score).sum().backward()

    both_ways()  # gradients are there already
    peak = peak_memory(both_ways, torch.device("cpu"))
    if peak is None:
        pytest.skip("this system doesn't tell a process its peak memory")
    assert peak < 512 * 512 * 256 * 4 / 4  # a quarter of one T x S x D tensor of float32


def test_custom_op_obeys_torchs_rules() -> None:
    inputs = [torch.randn(*shape, requires_grad=True) for shape in ((2, 3, 5), (2, 7, 5), (2, 5))]
    torch.library.opcheck(additive_score, tuple(inputs))
