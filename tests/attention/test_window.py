"""The window kernel: right at every edge, and O(r n d) by count, not by clock."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cases import SCORE_NAMES, build_score
from saccade import attend, explain, masks


@settings(max_examples=60)
@given(
    num_queries=st.integers(1, 300),
    num_keys=st.integers(1, 300),
    radius=st.integers(0, 90),
    offset=st.integers(-150, 150),
    padded=st.booleans(),
)
def test_equals_the_reference_at_every_edge(
    num_queries: int, num_keys: int, radius: int, offset: int, padded: bool
) -> None:
    query = torch.randn(2, num_queries, 3, dtype=torch.float64)
    key = torch.randn(2, num_keys, 3, dtype=torch.float64)
    mask = masks.window(radius, offset)
    if padded:
        mask = mask & masks.padding(torch.tensor([num_keys, num_keys // 2]))
    window, plain = (attend(query, key, key, mask=mask, backend=name) for name in ("window", "reference"))
    torch.testing.assert_close(window, plain)


@pytest.mark.parametrize("score_name", [name for name in SCORE_NAMES if name != "location"])
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
def test_every_score_and_its_gradients(score_name: str, normalizer: str) -> None:
    score = build_score(score_name, 5, heads=(3,))
    inputs = [torch.randn(2, 3, 170, 5, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    mask = masks.causal() & masks.window(9) & masks.padding(torch.tensor([170, 60]))
    assert explain(*inputs, score=score, normalizer=normalizer, mask=mask).backend == "window"
    gradients = []
    for backend in ("auto", "reference"):
        output = attend(*inputs, score=score, normalizer=normalizer, mask=mask, backend=backend)
        gradients.append(torch.autograd.grad(output.square().sum(), [*inputs, *score.parameters()], allow_unused=True))
    for ours, theirs in zip(*gradients, strict=True):
        if ours is None or theirs is None:  # mean reads neither queries nor keys
            assert (ours if theirs is None else theirs) is None or score_name == "mean"
        else:
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("length", [1000, 4000])
def test_the_number_of_scored_pairs_grows_linearly(length: int) -> None:
    pairs = 0

    def counting_dot(query: Tensor, key: Tensor) -> Tensor:
        nonlocal pairs
        score = query @ key.mT
        pairs += score.numel()
        return score

    x = torch.randn(length, 2)
    attend(x, x, x, score=counting_dot, mask=masks.window(16))
    assert length * 33 <= pairs <= length * 33 * 2.2
