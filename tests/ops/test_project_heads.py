"""One matrix for each head, however the heads lie: as torch's broadcast product."""

from __future__ import annotations

import pytest
import torch

from saccade.ops.linear import project_heads


@pytest.mark.parametrize(
    ("rows", "weight"),
    [
        ((5, 4), (3, 4)),
        ((2, 5, 4), (3, 4)),
        ((2, 6, 5, 4), (6, 3, 4)),
        ((2, 6, 1, 5, 4), (6, 1, 3, 4)),
        ((2, 2, 3, 5, 4), (2, 1, 3, 4)),
        ((7, 2, 2, 3, 5, 4), (2, 1, 3, 4)),
        ((2, 1, 5, 4), (6, 3, 4)),
        ((6, 5, 4), (6, 3, 4)),
        ((2, 2, 3, 5, 4), (2, 3, 3, 4)),
        ((0, 6, 5, 4), (6, 3, 4)),
    ],
)
def test_it_is_the_product(rows: tuple[int, ...], weight: tuple[int, ...]) -> None:
    leaves = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in (rows, weight)]
    found, expected = project_heads(*leaves), leaves[0] @ leaves[1].mT
    torch.testing.assert_close(found, expected)
    factor = torch.randn_like(expected)
    torch.testing.assert_close(*(torch.autograd.grad(x, leaves, factor) for x in (found, expected)))
