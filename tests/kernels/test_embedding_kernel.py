"""Embeddings with their places, interpreted: what the plain spelling gives, and its gradient."""

from __future__ import annotations

import pytest
import torch

from saccade.attention.places import Places
from saccade.layers.embedding import embedded, embedding
from saccade.layers.positions import Sinusoidal
from saccade.layers.residual import residual


@pytest.mark.parametrize("width", [16, 38, 520])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("placed", [True, False])
def test_it_is_the_plain_spelling(width: int, packed: bool, placed: bool) -> None:
    table, ids, positions = torch.randn(29, width, requires_grad=True), torch.randint(29, (3, 7)), Sinusoidal(width)
    place = Places(torch.randint(5, (3, 7)), 5) if packed else Places.following(2, 7, ids.device)
    rows = positions(Places.following(0, place.end, ids.device)) if placed else None
    ours = embedded(ids, table, place, rows, 0.0)
    plain = table[ids] * width**0.5 + (positions(place) if placed else 0.0)
    torch.testing.assert_close(ours, plain)
    grad = torch.randn(3, 7, width)
    for one, other in zip(torch.autograd.grad(ours, table, grad), torch.autograd.grad(plain, table, grad), strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_dropped_gets_no_gradient() -> None:
    table, ids, seed = torch.ones(5, 64, requires_grad=True), torch.arange(5), torch.tensor([7])
    y = embedding(ids, table, None, None, seed, 2.0, 0.25, torch.bfloat16)
    assert y.dtype == torch.bfloat16
    factor = residual(torch.ones(5, 64), None, None, None, seed, 0.25, 0.0)[0]
    assert 0 < int((factor == 0).sum()) < factor.numel()
    torch.testing.assert_close(y.float(), 2 * factor, atol=0.01, rtol=0.01)
    (grad,) = torch.autograd.grad(y.sum(), table)
    torch.testing.assert_close(grad, 2 * factor, atol=0.02, rtol=0.01)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_operator_keeps_torchs_rules() -> None:
    table, place = torch.randn(5, 8, requires_grad=True), torch.arange(3)
    torch.library.opcheck(
        embedding, (torch.randint(5, (2, 3)), table, place, torch.randn(4, 8), torch.tensor([7]), 2.0, 0.5, table.dtype)
    )
