"""REINFORCE beside cross-entropy, for networks that choose where to look: the batches and the hybrid loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, final

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data.pictures.canvases import Canvases
from saccade.models.glimpse_network import GlimpseNetwork, GlimpsePath


class PictureBatch(NamedTuple):
    """Rows of the pictures, which lie on the device already, and how far locations are drawn from their means."""

    row_B: Tensor
    std: Tensor

    @property
    def num_items(self) -> int:
        return len(self.row_B)

    def to(self, device: torch.device) -> PictureBatch:
        return PictureBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class RowPlan(Protocol):
    """A plan of the rows that go together in each epoch; as many batches in every one."""

    def epoch(self, number: int) -> Sequence[Any]:
        """Return the batches of an epoch, as rows."""

    @property
    def load(self) -> Callable[[Any], Tensor]:
        """Return the rows as a tensor on the device."""


@final
@dataclass(frozen=True)
class AnnealedPlan:
    """A plan whose batches know the noise of their locations: its standard deviation falls from the first to the last.

    What a batch is told depends on its number alone, so a run that was killed goes on exactly.
    """

    plan: RowPlan
    first_std: float
    last_std: float
    num_batches: int

    def epoch(self, number: int) -> list[tuple[float, Any]]:
        """Return standard deviations and rows."""
        batches = self.plan.epoch(number)
        start = number * len(batches)
        return [(self.std(start + index), rows) for index, rows in enumerate(batches)]

    def load(self, rows: tuple[float, Any]) -> PictureBatch:
        return PictureBatch(self.plan.load(rows[1]), torch.tensor(rows[0]))

    def std(self, batch: int) -> float:
        """Return the noise of a batch: its logarithm falls in a straight line."""
        share = min(1.0, batch / max(1, self.num_batches))
        return float(self.first_std ** (1 - share) * self.last_std**share)


@final
@dataclass(frozen=True)
class HybridLoss:
    """Cross-entropy for what is said, REINFORCE for where to look (Mnih 2014, section 3.2).

    -log p(y | h_T) - weight * sum_t log pi(l_t | h_t-1) (R_t - b_t) + sum_t (R_t - b_t)², where R_t = 1 if the answer
    is right at the end, or its expectation p(y | h_T) under an answer that is drawn (reward: probability), which varies
    less. With a discount below 1, R_t = (1 - discount) r_t + discount R_t+1 of the rewards r that answers after each
    glimpse would bring: what a look brings soon is its own merit. `early_weight` times the mean cross-entropy after the
    earlier glimpses is added; of M copies the mean counts.
    """

    network: GlimpseNetwork
    pixel_NCYX: Tensor
    label_N: Tensor
    canvases: Canvases
    copies: int = 1
    reward: str = "right"
    discount: float = 1.0
    policy_weight: float = 1.0
    early_weight: float = 0.0
    is_first_random: bool = False

    def __call__(self, batch: PictureBatch) -> tuple[Tensor, Tensor]:
        """Return the loss summed over the pictures, and its part that is the last answer's cross-entropy."""
        with torch.autocast(batch.row_B.device.type, enabled=False):  # places need all their digits
            image_BCYX = self.canvases.draw(self.pixel_NCYX, batch.row_B)
        noise_TBM2 = torch.randn(self.network.num_glimpses, len(batch.row_B), self.copies, 2, device=batch.row_B.device)
        path = self.network(image_BCYX, with_first(noise_TBM2 * batch.std, self.is_first_random))
        return self.of(path, self.label_N[batch.row_B].repeat_interleave(self.copies), batch.std)

    def of(self, path: GlimpsePath, label_N: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same two of glimpses that were taken."""
        num_steps = len(path.logits_TNV)
        label_TN = label_N.expand(num_steps, -1)
        entropy_TN = F.cross_entropy(path.logits_TNV.movedim(-1, 1), label_TN, reduction="none")
        early = self.early_weight * entropy_TN[:-1].sum(0) / max(1, num_steps - 1)
        reward_TN = _discount_rewards(_rewards(path.logits_TNV.detach(), label_TN, self.reward), self.discount)
        surprise_TN = reward_TN[1:] - path.baseline_TN[1:]
        distance_TN2 = (path.location_TN2 - path.mean_TN2)[1:] / std
        log_policy_TN = -distance_TN2.square().sum(-1) / 2
        policy = -(log_policy_TN * surprise_TN.detach()).sum(0)
        total_N = entropy_TN[-1] + early + self.policy_weight * policy + surprise_TN.square().sum(0)
        return total_N.sum() / self.copies, entropy_TN[-1].detach().sum() / self.copies


def _rewards(logits_TNV: Tensor, label_TN: Tensor, kind: str) -> Tensor:
    """Return the reward of the answer after each glimpse."""
    if kind == "probability":
        return logits_TNV.softmax(-1).gather(-1, label_TN[..., None]).squeeze(-1)
    return (logits_TNV.argmax(-1) == label_TN).float()


def _discount_rewards(reward_TN: Tensor, discount: float) -> Tensor:
    """R_T = r_T, R_t = (1 - discount) r_t + discount R_t+1."""
    if discount == 1:
        return reward_TN[-1:].expand_as(reward_TN)
    returns = [reward_TN[-1]]
    for reward_N in reward_TN[:-1].flip(0):
        returns.append(torch.lerp(reward_N, returns[-1], discount))
    return torch.stack(returns[::-1])


def with_first(noise_TBM2: Tensor, is_random: bool, generator: torch.Generator | None = None) -> Tensor:
    """Replace the first location by the middle, or by a random one."""
    first_BM2 = torch.zeros_like(noise_TBM2[0])
    if is_random:
        first_BM2.uniform_(-1, 1, generator=generator)
    return torch.cat([first_BM2[None], noise_TBM2[1:]])
