"""Half precision is for storing; sums and exponentials are taken in float32 at least."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
