"""Normalisers: hand-worked cases, sampling, and what REINFORCE needs."""

from __future__ import annotations

import math

import pytest
import torch

from saccade import NORMALIZERS, attend, masks
from saccade.attention.normalizers import Entmax15, Hard, Softmax, Sparsemax


def test_softmax_by_hand() -> None:
    weights = Softmax()(torch.tensor([0.0, math.log(3.0), 9.0]), torch.tensor([True, True, False]))
    torch.testing.assert_close(weights, torch.tensor([0.25, 0.75, 0.0]))


def test_sparsemax_by_hand() -> None:
    # support {1, 0.5}: tau = (1.5 - 1) / 2 = 0.25
    torch.testing.assert_close(Sparsemax()(torch.tensor([1.0, 0.5, -1.0])), torch.tensor([0.75, 0.25, 0.0]))
    torch.testing.assert_close(Sparsemax()(torch.tensor([5.0, 0.0])), torch.tensor([1.0, 0.0]))


def test_entmax15_by_hand() -> None:
    # two keys, e / 2 = (x, 0): (x - tau)² + tau² = 1 with tau = (x - sqrt(2 - x²)) / 2; x = 1 gives tau = 0
    torch.testing.assert_close(Entmax15()(torch.tensor([2.0, 0.0])), torch.tensor([1.0, 0.0]))
    half = (0.5 - math.sqrt(2 - 0.25)) / 2
    expected = torch.tensor([(0.5 - half) ** 2, half**2])
    torch.testing.assert_close(Entmax15()(torch.tensor([1.0, 0.0])), expected)


@pytest.mark.parametrize("name", list(NORMALIZERS))
def test_huge_scores_and_shifts_are_safe(name: str) -> None:
    normalizer = NORMALIZERS[name]().eval()
    score = torch.tensor([[3.0, 1.0, 2.5, -4.0]], dtype=torch.float64)
    torch.testing.assert_close(normalizer(score + 100, None), normalizer(score, None))
    extreme = torch.tensor([[3e38, -3e38, 0.0]])
    torch.testing.assert_close(normalizer(extreme, None), torch.tensor([[1.0, 0.0, 0.0]]))


def test_hard_takes_the_best_allowed_key_when_evaluating() -> None:
    score, mask = torch.tensor([[1.0, 5.0, 3.0], [1.0, 2.0, 3.0]]), torch.tensor([[True, False, True], [False] * 3])
    assert Hard().eval()(score, mask).tolist() == [[0, 0, 1], [0, 0, 0]]


def test_hard_samples_from_softmax_when_training() -> None:
    score = torch.tensor([0.0, 1.0, 2.0, 9.0]).expand(20_000, 4)
    mask = torch.tensor([True, True, True, False])
    share = Hard()(score, mask).mean(0)
    torch.testing.assert_close(share, Softmax()(score[0], mask), atol=0.015, rtol=0)


def test_reinforce_gradient_is_that_of_the_expected_reward() -> None:
    score = torch.randn(3, dtype=torch.float64, requires_grad=True)
    reward = torch.tensor([1.0, -2.0, 4.0], dtype=torch.float64)
    (exact,) = torch.autograd.grad((score.softmax(-1) * reward).sum(), score)
    hard = Hard()
    many = score.expand(200_000, 3)
    picked = hard(many, None)
    surrogate = (hard.log_probability(many, None, picked) * (picked * reward).sum(-1)).mean()
    (sampled,) = torch.autograd.grad(surrogate, score)
    torch.testing.assert_close(sampled, exact, atol=0.02, rtol=0)


def test_attend_returns_the_log_probability_of_the_picked_keys() -> None:
    query, key = torch.randn(2, 3, 5), torch.randn(2, 7, 5)
    allowed = torch.ones(2, 3, 7, dtype=torch.bool)
    allowed[0, 1] = False
    output, weights, log_probability = attend(
        query, key, key, normalizer=Hard(), mask=allowed, return_weights=True, return_log_probability=True
    )
    assert output.shape == (2, 3, 5)
    soft = attend(query, key, key, mask=allowed, return_weights=True)[1]
    expected = torch.where(allowed.any(-1), (soft * weights).sum(-1).clamp_min(1e-30).log(), 0.0)
    torch.testing.assert_close(log_probability, expected)
    assert isinstance(attend(query, key, key, normalizer=Hard(), return_log_probability=True), tuple)


def test_log_probability_is_finite_in_half_precision_and_ignores_local_ps_gaussian() -> None:
    score = torch.tensor([[30.0, 31.0, 2.0]], dtype=torch.float16)
    allowed = torch.tensor([[True, True, False]])
    picked = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float16)
    found = Hard().log_probability(score, allowed, picked)
    torch.testing.assert_close(found, torch.tensor([-math.log(1 + math.exp(-1))]))
    query, key = torch.randn(1, 3, 4), torch.randn(1, 9, 4)
    mask = masks.around(torch.tensor([[2.2, 4.7, 6.1]]), 2)
    *_, weights, log_probability = attend(
        query, key, key, normalizer=Hard(), mask=mask, return_weights=True, return_log_probability=True
    )
    soft = attend(query, key, key, mask=mask.dense(3, 9), return_weights=True)[1]
    expected = soft.gather(-1, weights.argmax(-1, keepdim=True)).log().squeeze(-1)
    torch.testing.assert_close(log_probability, expected)


def test_straight_through_picks_one_and_learns_like_softmax() -> None:
    score = torch.randn(5, 7, requires_grad=True)
    weights = Hard("straight_through", temperature=0.5)(score, None)
    assert sorted(set(weights.detach().round(decimals=5).flatten().tolist())) == [0, 1]
    (gradient,) = torch.autograd.grad((weights * torch.randn(7)).sum(), score)
    assert gradient.abs().sum() > 0


def test_dropout_keeps_the_expectation_and_the_returned_weights() -> None:
    query, key = torch.randn(3, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    plain, weights = attend(query, key, key, return_weights=True)
    drawn = torch.stack([attend(query, key, key, dropout=0.4) for _ in range(4000)])
    torch.testing.assert_close(drawn.mean(0), plain, atol=0.06, rtol=0)
    assert drawn.std(0).min() > 0
    torch.testing.assert_close(attend(query, key, key, dropout=0.4, return_weights=True)[1], weights)


@pytest.mark.parametrize("arguments", [{"normalizer": Hard()}, {"dropout": 0.5}])
def test_randomness_is_repeatable_under_a_seed(arguments: dict[str, object]) -> None:
    query, key = torch.randn(3, 5), torch.randn(7, 5)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(attend(query, key, key, **arguments))  # type: ignore[call-overload]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
def test_a_row_with_nan_is_nan_and_nothing_else_breaks(name: str) -> None:
    score = torch.tensor([[1.0, torch.nan, 0.5], [2.0, 0.0, 0.0]])
    weight = NORMALIZERS[name]()(score, torch.tensor([True, True, False]))
    assert weight.isnan().tolist() == [[True, True, False], [False] * 3]
