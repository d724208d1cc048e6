"""Dropout: the share, the mean, the seed, the gradient."""

from __future__ import annotations

import pytest
import torch

from saccade.ops.dropout import dropout


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_and_the_mean(share: float) -> None:
    torch.manual_seed(1)
    x = torch.ones(401, 503)
    dropped = dropout(x, share)
    zero = (dropped == 0).float().mean().item()
    assert zero == pytest.approx(share, abs=4 * (share * (1 - share) / x.numel()) ** 0.5)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.03)
    assert dropped.unique().numel() == 2
    for axis in (0, 1):  # no row and no column is favoured
        assert (dropped == 0).float().mean(axis).std().item() < 3 * (share * (1 - share) / 401) ** 0.5


def test_it_is_a_function_of_torchs_seed() -> None:
    x = torch.ones(7, 11)
    torch.manual_seed(3)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5), first)
    assert not torch.equal(first, second)


def test_the_gradient_is_the_factor() -> None:
    x = torch.randn(5, 13, requires_grad=True)
    dropped = dropout(x, 0.3)
    (grad,) = torch.autograd.grad(dropped.sum(), x)
    torch.testing.assert_close(grad * x, dropped)


def test_nothing_happens_where_nothing_is_asked() -> None:
    x = torch.randn(3, 5)
    assert dropout(x, 0.0) is x
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x.double(), 0.5).dtype == torch.float64
