"""A linear-chain conditional random field: scores for each tag and for each pair of neighbours."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from saccade.ops.precision import widen

FORBIDDEN = -1e4  # a transition's score: its exp() is 0, and sums of it stay finite in every precision
HOPELESS = 1e-30  # of the likeliest tag's share: what has less is not learned from


@final
class LinearChain(nn.Module):
    """p(y | x) = exp s(x, y) / Z(x), s = sum_t emission[t, y_t] + transition[y_t-1, y_t] (Lafferty 2001, section 3).

    The last row and column of the transitions stand for a sentence's start and end. `allowed` is a table of that shape:
    what it forbids has probability 0. With `is_learned=False` the transitions are this table alone.
    """

    def __init__(self, num_tags: int, *, allowed: list[list[bool]] | None = None, is_learned: bool = True) -> None:
        super().__init__()
        self.num_tags = num_tags
        self.transition = nn.Parameter(torch.zeros(num_tags + 1, num_tags + 1), requires_grad=is_learned)
        table = torch.ones(num_tags + 1, num_tags + 1) if allowed is None else torch.tensor(allowed).float()
        self.register_buffer("penalty", (1 - table) * FORBIDDEN, persistent=False)

    def log_probability(self, emission_BTV: Tensor, tag_BT: Tensor, length_B: Tensor) -> Tensor:
        """Return log p of each row's tags, [B]; steps behind a length are ignored."""
        return self.score(emission_BTV, tag_BT, length_B) - self.log_partition(emission_BTV, length_B)

    def score(self, emission_BTV: Tensor, tag_BT: Tensor, length_B: Tensor) -> Tensor:
        pair_VV, edge = self.pairs(), self.num_tags
        real_BT = _real(tag_BT, length_B)
        tag_BT = tag_BT.where(real_BT, edge)
        before_BT = torch.cat([torch.full_like(tag_BT[:, :1], edge), tag_BT[:, :-1]], 1)
        emitted_BT = widen(emission_BTV).gather(2, tag_BT.clamp(max=edge - 1)[..., None])[..., 0]
        last_B = tag_BT.gather(1, length_B[:, None] - 1)[:, 0]
        return ((emitted_BT + pair_VV[before_BT, tag_BT]) * real_BT).sum(1) + pair_VV[last_B, edge]

    def log_partition(self, emission_BTV: Tensor, length_B: Tensor) -> Tensor:
        """Return log Z(x), [B]: alpha_t[y] = emission[t, y] + log sum_x exp(alpha_t-1[x] + transition[x, y])."""
        pair_VV, edge = self.pairs(), self.num_tags
        factor_VV, emission_BTV = pair_VV[:edge, :edge].exp(), widen(emission_BTV)
        real_TB1 = _real(emission_BTV[..., 0], length_B).mT[..., None]
        alpha_BV = pair_VV[edge, :edge] + emission_BTV[:, 0]
        for emission_BV, real_B1 in zip(emission_BTV.unbind(1)[1:], real_TB1[1:], strict=True):
            most_B1 = alpha_BV.detach().amax(1, keepdim=True)
            sum_BV = ((alpha_BV - most_B1).exp() @ factor_VV).clamp_min(HOPELESS)
            alpha_BV = torch.where(real_B1, sum_BV.log() + most_B1 + emission_BV, alpha_BV)
        return torch.logsumexp(alpha_BV + pair_VV[:edge, edge], 1)

    @torch.no_grad()
    def best(self, emission_BTV: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best tags [B, T], 0 behind the length, and their scores [B] (Viterbi 1967)."""
        pair_VV, edge = self.pairs(), self.num_tags
        inner_VV, emission_BTV = pair_VV[:edge, :edge], widen(emission_BTV)
        real_BT = _real(emission_BTV[..., 0], length_B)
        stay_V = torch.arange(edge, device=emission_BTV.device)
        best_BV, came_from = pair_VV[edge, :edge] + emission_BTV[:, 0], []
        for step in range(1, emission_BTV.shape[1]):
            value_BV, from_BV = (best_BV[:, :, None] + inner_VV).max(1)
            real_B1 = real_BT[:, step, None]
            best_BV = torch.where(real_B1, value_BV + emission_BTV[:, step], best_BV)
            came_from.append(torch.where(real_B1, from_BV, stay_V))
        score_B, tag_B = (best_BV + pair_VV[:edge, edge]).max(1)
        path = [tag_B]
        for from_BV in reversed(came_from):
            path.append(from_BV.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], 1) * real_BT, score_B

    @torch.enable_grad()
    def marginals(self, emission_BTV: Tensor, length_B: Tensor) -> Tensor:
        """Return p(y_t = v | x), [B, T, V], 0 behind the length: the gradient of log Z by the emissions."""
        emission_BTV = widen(emission_BTV.detach()).requires_grad_()
        (marginal_BTV,) = torch.autograd.grad(self.log_partition(emission_BTV, length_B).sum(), emission_BTV)
        return marginal_BTV

    def pairs(self) -> Tensor:
        """Return the score of each pair of neighbours, [V + 1, V + 1]: from, to."""
        return self.transition + self.get_buffer("penalty")


def _real(like_BT: Tensor, length_B: Tensor) -> Tensor:
    return torch.arange(like_BT.shape[1], device=like_BT.device) < length_B[:, None]
