"""The window kernel: right at every edge, and O(r n d) by count, not by clock."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cases import SCORE_NAMES, build_score
from saccade import attend, explain, masks
from saccade.attention import Score


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
    pairs = []

    class CountingDot(Score):
        def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
            score = query_BTD @ memory_BSD.mT
            pairs.append(score.numel())
            return score

    x = torch.randn(length, 2)
    attend(x, x, x, score=CountingDot(), mask=masks.window(16))
    assert length * 33 <= sum(pairs) <= length * 33 * 2.2


def test_a_callable_that_may_read_positions_is_not_cut_into_blocks() -> None:
    def linear_bias(query: Tensor, key: Tensor) -> Tensor:  # ALiBi
        return query @ key.mT - 0.1 * (torch.arange(400)[:, None] - torch.arange(400)).abs()

    x = torch.randn(400, 4)
    assert explain(x, x, x, score=linear_bias, mask=masks.window(8)).backend == "reference"


def test_full_or_anything_is_full_and_blocks_stay_right() -> None:
    x = torch.randn(3, 400, 4)
    mask = (masks.full() | masks.padding(torch.tensor([3, 4, 5]))) & masks.window(4)
    torch.testing.assert_close(attend(x, x, x, mask=mask), attend(x, x, x, mask=mask, backend="reference"))


def test_zero_rows_have_the_output_dtype_under_autocast() -> None:
    x = torch.randn(1, 100, 4)
    with torch.autocast("cpu", torch.bfloat16):
        output = attend(x, x, x, mask=masks.window(2, offset=1000), backend="window")
    assert output.dtype == torch.bfloat16
    assert (output == 0).all()
