"""Inputs of a linear layer: rows, or the norm of a sum that it computes itself."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from saccade.ops.kernels.availability import is_fused

FEW = 16  # rows, for which a product takes little longer than its weights take to be read
FEWER = 4  # ... if these are many: more rows would read them again
MANY_OUTPUTS = 8192
WIDEST = 4096  # a program holds whole rows in registers


class LazyNorm(NamedTuple):
    """norm(x + branch) of few rows, [..., D]: its reader, a linear layer, computes it and writes x + branch to `total`.

    Without a branch, `total` is x.
    """

    x: Tensor
    branch: Tensor | None
    total: Tensor
    weight: Tensor
    bias: Tensor
    epsilon: float


Rows = Tensor | LazyNorm


def tensor_of(rows: Rows) -> Tensor:
    """Return the tensor whose shape, dtype and device these rows have."""
    return rows.x if isinstance(rows, LazyNorm) else rows


def are_few(x: Tensor, num_outputs: int = 0) -> bool:
    """Return True if the kernel for few rows computes linear layers of x: when a decoder writes a sentence or two."""
    if torch.is_grad_enabled() or not is_fused(x) or torch.is_autocast_enabled(x.device.type):
        return False
    if x.shape[-1] > WIDEST:
        return False
    return 0 < x.shape[:-1].numel() <= (FEW if num_outputs <= MANY_OUTPUTS else FEWER)
