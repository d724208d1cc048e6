"""A matrix for each head: the heads lead, so that no matrix is copied for every entry of a batch."""

from __future__ import annotations

import math

from torch import Tensor


def headwise(x: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ: [..., T, D] with [A, D], or with [heads, A, D] where the heads stand before T in x -> [..., T, A]."""
    heads, batch = weight.shape[:-2], x.dim() - weight.dim()
    if not heads or batch < 1 or math.prod(heads) != heads[0] or x.shape[batch] != heads[0]:
        return x @ weight.mT
    rows = x.movedim(batch, 0)  # [heads, ..., T, D]
    found = rows.reshape(heads[0], -1, x.shape[-1]).bmm(weight.reshape(heads[0], *weight.shape[-2:]).mT)
    return found.view(*rows.shape[:-1], weight.shape[-2]).movedim(0, batch)
