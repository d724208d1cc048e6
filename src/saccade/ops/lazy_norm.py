"""What a linear layer reads: rows, or the norm of a sum that nobody has computed yet."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from saccade.ops.kernels.availability import is_fused

FEW = 16  # rows, for which a product takes little longer than its weights take to be read
FEWER = 4  # ... if these are many: more rows would read them again
MANY_OUTPUTS = 8192
WIDEST = 4096  # a program holds whole rows in registers


class Normed(NamedTuple):
    """norm(x + branch) of few rows, [..., D]: linear layers compute it on their way, and leave x + branch in `total`.

    Where there is no branch, `total` is x.
    """

    x: Tensor
    branch: Tensor | None
    total: Tensor
    weight: Tensor
    bias: Tensor
    epsilon: float


Rows = Tensor | Normed


def given(rows: Rows) -> Tensor:
    """A tensor that is like them."""
    return rows.x if isinstance(rows, Normed) else rows


def are_few(x: Tensor, num_outputs: int = 0) -> bool:
    """Whether there is a kernel for linear layers of such rows: a decoder's, that writes a sentence or two."""
    if torch.is_grad_enabled() or not is_fused(x) or torch.is_autocast_enabled(x.device.type):
        return False
    if x.shape[-1] > WIDEST:
        return False
    return 0 < x.shape[:-1].numel() <= (FEW if num_outputs <= MANY_OUTPUTS else FEWER)
