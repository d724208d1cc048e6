"""The hybrid loss by hand, and the plan of its noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.pictures.canvases import Canvases
from saccade.models.glimpse_network import GlimpseNetwork, GlimpsePath
from saccade.tasks.glimpse.loss import AnnealedPlan, HybridLoss, _discount_rewards, _rewards


def loss(**options: Any) -> HybridLoss:
    pixels = torch.randint(0, 256, (17, 1, 13, 13), dtype=torch.uint8)
    network = GlimpseNetwork(3, size=4, num_scales=2, num_glimpses=5, width=11)
    return HybridLoss(network, pixels, torch.arange(17) % 3, Canvases(), **options)


def gaze(logits_TNV: Tensor, mean_TN2: Tensor, noise_TN2: Tensor, baseline_TN: Tensor) -> GlimpsePath:
    return GlimpsePath((mean_TN2 + noise_TN2).detach(), mean_TN2, logits_TNV, baseline_TN)


STD = torch.tensor(0.5)
LABELS = torch.tensor([1, 0])
LOGITS = torch.tensor([[[0.0, 0, 0], [1, 0, 0]], [[0.0, 2, 0], [0, 0, 3]]])  # in the end the first is right


@pytest.mark.parametrize("reward", ["right", "probability"])
def test_the_loss_by_hand(reward: str) -> None:
    mean = torch.tensor([[[0.0, 0], [0, 0]], [[0.1, 0.2], [0.3, 0.4]]], requires_grad=True)
    noise = torch.tensor([[[0.0, 0], [0, 0]], [[0.5, 0.0], [-0.25, 1.0]]])
    baseline = torch.tensor([[0.0, 0], [0.25, 0.5]], requires_grad=True)
    entropy = [-math.log(math.exp(2) / (2 + math.exp(2))), -math.log(1 / (2 + math.exp(3)))]
    rewards = [1.0, 0.0] if reward == "right" else [math.exp(-part) for part in entropy]
    surprise = [rewards[0] - 0.25, rewards[1] - 0.5]
    policy = [(1 + 0) / 2 * surprise[0], (0.25 + 4) / 2 * surprise[1]]  # - log pi (R - b), up to a constant
    total, shown = loss(reward=reward).of(gaze(LOGITS, mean, noise, baseline), LABELS, STD)
    assert float(shown) == pytest.approx(sum(entropy))
    assert float(total.detach()) == pytest.approx(sum(entropy) + sum(policy) + sum(part**2 for part in surprise))
    total.backward()
    assert mean.grad is not None
    assert baseline.grad is not None
    for row in range(2):  # d/dmean = -(l - mean) / std^2 (R - b); the baseline's gradient is its own error's alone
        pull = [-float(noise[1, row, axis]) / 0.25 * surprise[row] for axis in range(2)]
        assert mean.grad[1, row].tolist() == pytest.approx(pull)
        assert float(baseline.grad[1, row]) == pytest.approx(-2 * surprise[row])
    assert not mean.grad[0].any()  # nobody chose the first location


def test_weights_of_the_loss() -> None:
    mean, baseline = torch.zeros(2, 2, 2), torch.zeros(2, 2)
    seen = gaze(LOGITS, mean, torch.ones(2, 2, 2), baseline)
    plain, _ = loss(policy_weight=0.0).of(seen, LABELS, STD)
    heavy, _ = loss(policy_weight=3.0).of(seen, LABELS, STD)
    early, _ = loss(policy_weight=0.0, early_weight=0.5).of(seen, LABELS, STD)
    assert float(heavy - plain) == pytest.approx(3 * 4 * 1)  # |l - mean|^2 / 2 std^2 = 4 for the one that is right
    first = [math.log(3), -math.log(math.e / (math.e + 2))]
    assert float(early - plain) == pytest.approx(0.5 * sum(first), rel=1e-5)
    copies, _ = loss(policy_weight=0.0, copies=2).of(seen, LABELS, STD)
    assert float(copies) == pytest.approx(float(plain) / 2)


def test_a_discount_credits_a_look_with_what_it_brings_soon() -> None:
    reward_TN = torch.tensor([[0.0, 0.5], [1.0, 0.5], [0.5, 0.0]])
    assert _discount_rewards(reward_TN, 1.0).tolist() == [[0.5, 0.0]] * 3  # the end alone
    expected = [[0.75 * 0.0 + 0.25 * 0.875, 0.75 * 0.5 + 0.25 * 0.375], [0.75 * 1 + 0.25 * 0.5, 0.75 * 0.5], [0.5, 0.0]]
    torch.testing.assert_close(_discount_rewards(reward_TN, 0.25), torch.tensor(expected))
    logits_TNV = torch.log(torch.tensor([[[0.2, 0.8]], [[0.7, 0.3]]]))
    for kind, wanted in (("probability", [0.8, 0.3]), ("right", [1.0, 0.0])):
        found = _rewards(logits_TNV, torch.ones(2, 1, dtype=torch.long), kind).flatten()
        torch.testing.assert_close(found, torch.tensor(wanted))


def test_a_batch_has_a_loss_of_each_picture_and_copy() -> None:
    hybrid = loss(copies=3, is_first_random=True)
    batch = AnnealedPlan(_Plan(), 0.2, 0.1, 10).load((0.2, np.array([2, 5])))
    assert batch.num_items == 2
    assert float(batch.std) == pytest.approx(0.2)
    torch.manual_seed(1)
    total, shown = hybrid(batch.to(torch.device("cpu")))
    assert total.isfinite()
    assert 0 < float(shown) < 2 * 10
    torch.manual_seed(1)
    assert torch.equal(total, hybrid(batch)[0])  # all that is random comes from torch's generator
    assert not torch.equal(total, hybrid(batch)[0])


class _Plan:
    load = staticmethod(torch.from_numpy)

    def epoch(self, number: int) -> list[NDArray[np.int64]]:
        return [np.arange(3) + number, np.arange(2)]


def test_locations_have_less_and_less_noise() -> None:
    plan = AnnealedPlan(_Plan(), 0.4, 0.1, 4)
    found = [std for number in range(3) for std, _ in plan.epoch(number)]
    assert found == pytest.approx([0.4, 0.4 * 0.25**0.25, 0.2, 0.4 * 0.25**0.75, 0.1, 0.1])
    assert plan.epoch(2)[0][1].tolist() == [2, 3, 4]
